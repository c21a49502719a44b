// What attnd's log says of what clients do, and who waits for its reader.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "tests/hang_limit.h"
#include "tests/integration/http2.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {
namespace {

constexpr char kForward[] = "/attn.v1.AttentionService/Forward";

std::unique_ptr<ServerProcess> StartAttnd(int log = -1) {
  auto process =
      ServerProcess::Start(ATTND_BINARY, {"--memory_limit=256MiB"}, log);
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

// A call with a header that gRPC logs as it came.
void SayInTheLog(const ServerProcess& process, const std::string& what) {
  RawHttp2Call(process.tcp(), kForward, {{"grpc-timeout", what}}, "");
}

std::vector<std::string> Lines(const ServerProcess& process) {
  return absl::StrSplit(process.log(), '\n', absl::SkipEmpty());
}

// Lines of the libraries, and how many more the log says were left out.
struct LibraryLines {
  int written = 0;
  int left_out = 0;
};
LibraryLines Count(const ServerProcess& process) {
  LibraryLines lines;
  for (const std::string& line : Lines(process)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int count = 0;
    // In quotes where it has a `=`.
    const absl::string_view library = absl::StripPrefix(words.at(2), "\"");
    if (library == "gRPC:" || library == "protobuf:") ++lines.written;
    if (absl::EndsWith(line, "libraries left out") &&
        absl::SimpleAtoi(words.at(2), &count)) {
      lines.left_out += count;
    }
  }
  return lines;
}

void ExpectLogged(const ServerProcess& process, const std::string& text) {
  EXPECT_TRUE(process.AwaitLog(text)) << process.log();
}

TEST(ProgramLog, NoClientWritesALineOfItsOwn) {
  const auto process = StartAttnd();
  SayInTheLog(*process, "1\r\n2026-11-25T00:00:00.000Z bye\x1b[31m\x7f\xff");
  ExpectLogged(
      *process,
      "value=1\\x0d\\x0a2026-11-25T00:00:00.000Z bye\\x1b[31m\\x7f\\xff");
  for (const std::string& line : Lines(*process)) {
    for (const char c : line) EXPECT_TRUE(absl::ascii_isprint(c)) << line;
    EXPECT_FALSE(absl::EndsWith(line, "Z bye")) << line;
  }
}

TEST(ProgramLog, ProtobufsLinesComeThroughItToo) {
  const auto process = StartAttnd();
  // A HealthCheckRequest whose service is no UTF-8.
  RawHttp2Call(process->tcp(), "/grpc.health.v1.Health/Check", {},
               "\x0a\x02\xff\xfe");
  ExpectLogged(*process, "Z error protobuf: ");
}

TEST(ProgramLog, GrpcVerbosityChoosesGrpcsLines) {
  EXPECT_EQ(Count(*StartAttnd()).written, 0);
  setenv("GRPC_VERBOSITY", "debug", 1);
  const auto process = StartAttnd();
  unsetenv("GRPC_VERBOSITY");
  ExpectLogged(*process, "Z info gRPC: ");
}

TEST(ProgramLog, AClientFillsTenKibibytesASecondAtMost) {
  constexpr int kCalls = 40, kLinesOfACall = 25;
  const auto process = StartAttnd();
  const size_t before = process->log().size();
  const absl::Time start = MonotonicNow();
  const std::vector<std::pair<std::string, std::string>> headers(
      kLinesOfACall, {"grpc-timeout", std::string(100, '\n')});
  for (int i = 0; i < kCalls; ++i) {
    RawHttp2Call(process->tcp(), kForward, headers, "");
  }
  const size_t bytes = process->log().size() - before;
  // However long the calls took: of a second that has begun all may be used.
  const int64_t seconds = 1 + absl::ToInt64Seconds(MonotonicNow() - start);
  EXPECT_LE(bytes, 10240 * seconds);
  // What is not there is counted.
  EXPECT_TRUE(Eventually([&] {
    const LibraryLines lines = Count(*process);
    return lines.written + lines.left_out == kCalls * kLinesOfACall;
  })) << process->log();
}

// Metrics and the log tell alike how many lines of calls are not there.
TEST(ProgramLog, AFloodOfBadCallsIsCounted) {
  auto started = ServerProcess::Start(
      ATTND_BINARY, {"--memory_limit=256MiB", "--metrics_port=0"});
  ASSERT_TRUE(started.ok()) << started.status();
  const std::unique_ptr<ServerProcess> process = *std::move(started);
  constexpr int kCalls = 300;
  const std::shared_ptr<grpc::Channel> channel = Connect(process->tcp());
  attn::v1::ForwardRequest bad = RandomForward(8, 2, 8);
  bad.mutable_k()->set_shape(2, 3);
  for (int i = 0; i < kCalls; ++i) {
    attn::v1::ForwardResponse response;
    EXPECT_TRUE(absl::IsInvalidArgument(Forward(channel, bad, response)));
  }
  const auto counted = [&process] {
    return process->Metric(
        "attnd_log_lines_left_out_total{source=\"calls\",reason=\"budget\"}");
  };
  const auto in_log = [&process] {
    int written = 0, left_out = 0;
    for (const std::string& line : Lines(*process)) {
      written += absl::StrContains(line, "Forward ended: INVALID_ARGUMENT");
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      int count = 0;
      if (absl::EndsWith(line, "lines of calls left out") &&
          absl::SimpleAtoi(words.at(2), &count)) {
        left_out += count;
      }
    }
    return std::pair(written, left_out);
  };
  EXPECT_TRUE(Eventually([&] {
    const auto [written, left_out] = in_log();
    return written + left_out == kCalls && counted() == left_out;
  })) << counted()
      << " counted\n"
      << process->log();
  EXPECT_GT(counted(), 0);
}

TEST(ProgramLog, WhyItDoesNotStartIsSaidAtEveryLevel) {
  const auto other = StartAttnd();
  const std::string port = other->tcp().substr(other->tcp().rfind(':') + 1);
  const Ran ran =
      RunProgram({ATTND_BINARY, "--device=cpu", "--memory_limit=256MiB",
                  "--log_level=error", absl::StrCat("--port=", port)});
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_TRUE(absl::StrContains(ran.output, " error ")) << ran.output;
  EXPECT_TRUE(absl::StrContains(ran.output, port)) << ran.output;
}

TEST(ProgramLog, AStoppedReaderHoldsUpNeitherCallsNorTheEnd) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(pipe[1], F_SETPIPE_SZ, 4096), 4096);
  const auto process = StartAttnd(pipe[1]);
  // Full. Opened anew: attnd's own descriptor stays one that blocks.
  const int filler = open(absl::StrCat("/proc/self/fd/", pipe[1]).c_str(),
                          O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(filler, 0);
  while (write(filler, "", 1) == 1) {
  }
  for (int i = 0; i < 24; ++i) SayInTheLog(*process, std::string(100, '\x1b'));
  attn::v1::ForwardResponse response;
  const absl::Status status =
      Forward(Connect(process->tcp()), RandomForward(16, 2, 8), response);
  EXPECT_TRUE(status.ok()) << status;
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0);
  close(filler);
  close(pipe[0]);
  close(pipe[1]);
}

}  // namespace
}  // namespace attnd::testing
