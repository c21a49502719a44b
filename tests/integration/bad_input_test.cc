// What hostile clients send, over real gRPC to a server in another process:
// each is refused by its field, the server serves the next request, and its
// memory stays within bounds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/wire/status.h"
#include "tests/hang_limit.h"
#include "tests/integration/http2.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

using server::BadRequest;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMemoryLimit = 128 * kMiB;
constexpr int64_t kSlack = 64 * kMiB;

class BadInput : public ::testing::Test {
 protected:
  void SetUp() override {
    auto process = ServerProcess::Start(
        ATTND_BINARY, {"--memory_limit=128MiB", "--threads=1"});
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    channel_ = Connect(process_->tcp());
  }

  // A build with the address sanitizer exits otherwise if it leaked.
  void TearDown() override {
    if (process_ == nullptr) return;
    process_->Signal(SIGTERM);
    EXPECT_EQ(process_->Wait(), 0) << process_->log();
  }

  void ExpectServes() {
    attn::v1::ForwardResponse response;
    const absl::Status status =
        Forward(channel_, server::GoodForward(), response);
    ASSERT_TRUE(status.ok()) << status << "\n" << process_->log();
    EXPECT_EQ(response.o().data().size(), 2 * 3 * 4 * 6 * sizeof(float));
    EXPECT_EQ(response.lse().data().size(), 2 * 3 * 4 * sizeof(float));
  }

  // Too large ever to be served: nothing to retry, and no memory taken.
  void ExpectTooLarge(const absl::Status& status) {
    EXPECT_TRUE(absl::IsResourceExhausted(status) ||
                absl::IsUnimplemented(status))
        << status;
    EXPECT_FALSE(wire::RetryDelay(status).has_value()) << status;
    if (!kSanitized) {
      EXPECT_LE(process_->usage().peak_resident_bytes, kMemoryLimit + kSlack);
    }
    ExpectServes();
  }

  std::unique_ptr<ServerProcess> process_;
  std::shared_ptr<grpc::Channel> channel_;
};

// `bytes` of zeros that take 1 MiB here.
grpc::ByteBuffer Zeros(int64_t bytes) {
  const grpc::Slice slice(std::string(kMiB, '\0'));
  const std::vector<grpc::Slice> slices(bytes / kMiB, slice);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST_F(BadInput, EachIsRefusedByItsFieldAndTheNextIsServed) {
  for (const BadRequest& bad : server::BadRequests()) {
    EXPECT_EQ(server::Mismatch(bad, RawCall(channel_, bad.op, bad.bytes)), "");
    ExpectServes();
  }
}

TEST_F(BadInput, NaiveWhoseScratchCanNeverFitIsRefused) {
  // Scores of 8192 x 8192 floats in each head: 256 MiB and more.
  attn::v1::ForwardRequest request = RandomForward(8192, 1, 1);
  request.mutable_options()->set_algorithm(attn::v1::ALGORITHM_NAIVE);
  attn::v1::ForwardResponse response;
  const absl::Status status = Forward(channel_, request, response);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_FALSE(wire::FieldViolations(status).empty()) << status;
  ExpectServes();
}

TEST_F(BadInput, AMessageOverTheLimitIsRefused) {
  ExpectTooLarge(RawCall(channel_, Op::kForward, Zeros(40 * kMiB)));
}

TEST_F(BadInput, AMessageOfAGibibyteTakesNoMemory) {
  ExpectTooLarge(RawCall(channel_, Op::kForward, Zeros(1024 * kMiB)));
}

TEST_F(BadInput, AGzipBombTakesNoMemory) {
  ExpectTooLarge(
      RawCall(channel_, Op::kForward, Zeros(256 * kMiB), {.gzip = true}));
}

TEST_F(BadInput, ATimeoutOfOneNanosecondEndsTheCallAtOnce) {
  // gRPC rounds it up to 1 ms; this takes hundreds, by scalar code.
  attn::v1::ForwardRequest slow;
  slow.mutable_options()->set_algorithm(attn::v1::ALGORITHM_ONLINE_SOFTMAX);
  for (auto* tensor : {slow.mutable_q(), slow.mutable_k(), slow.mutable_v()}) {
    tensor->set_dtype(attn::v1::DATA_TYPE_BF16);
    for (const int64_t size : {1, 8192, 1, 1}) tensor->add_shape(size);
    tensor->set_data(std::string(8192 * 2, '\0'));
  }
  const std::string request = slow.SerializeAsString();
  for (int i = 0; i < 5; ++i) {
    const Http2Answer answer =
        RawHttp2Call(process_->tcp(), "/attn.v1.AttentionService/Forward",
                     {{"grpc-timeout", "1n"}}, request);
    EXPECT_TRUE(answer.ended);
    EXPECT_TRUE(answer.reset || answer.Says("grpc-status", "4"))
        << answer.headers;
  }
  // In time it is a good request.
  const Http2Answer answer = RawHttp2Call(
      process_->tcp(), "/attn.v1.AttentionService/Forward", {}, request);
  EXPECT_TRUE(answer.Says("grpc-status", "0")) << answer.headers;
  ExpectServes();
}

TEST_F(BadInput, MetadataOverTheLimitIsRefused) {
  const std::string request = server::GoodForward().SerializeAsString();
  const auto with_headers = [&](int count) {
    const std::vector<std::pair<std::string, std::string>> headers(
        count, {"x-blob", std::string(100, 'x')});
    return RawHttp2Call(process_->tcp(), "/attn.v1.AttentionService/Forward",
                        headers, request);
  };
  // HTTP/2 counts 32 bytes more a header: 13.5 of at most 16 KiB.
  const Http2Answer within = with_headers(100);
  EXPECT_TRUE(within.Says("grpc-status", "0")) << within.headers;
  for (const int count : {200, 1000, 100000}) {
    const Http2Answer answer = with_headers(count);
    EXPECT_TRUE(answer.ended) << count;
    EXPECT_TRUE(answer.reset || answer.Says("grpc-status", "8"))
        << count << ": " << answer.headers;
    EXPECT_FALSE(answer.Says("grpc-status", "0")) << count;
    ExpectServes();
  }
  if (!kSanitized) {
    EXPECT_LE(process_->usage().peak_resident_bytes, kMemoryLimit + kSlack);
  }
}

TEST_F(BadInput, MalformedFramesEndTheirOwnConnectionOnly) {
  const std::string request = server::GoodForward().SerializeAsString();
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{
           {"grpc-timeout", "99999999999999S"},
           {"grpc-timeout", "-1S"},
           {"grpc-timeout", ""},
           {"grpc-encoding", "no-such-encoding"}}) {
    const Http2Answer answer =
        RawHttp2Call(process_->tcp(), "/attn.v1.AttentionService/Forward",
                     {{name, value}}, request);
    EXPECT_TRUE(answer.ended) << name << ": " << value;
  }
  ExpectServes();
}

TEST_F(BadInput, UnknownMethodsAreUnimplemented) {
  const Http2Answer answer = RawHttp2Call(
      process_->tcp(), "/attn.v1.AttentionService/Sideways", {}, "");
  EXPECT_TRUE(answer.ended);
  EXPECT_TRUE(answer.Says("grpc-status", "12")) << answer.headers;
  ExpectServes();
}

TEST(MaxStreams, BoundsTheCallsOfOneConnection) {
  auto started = ServerProcess::Start(ATTND_BINARY,
                                      {"--max_streams=2", "--metrics_port=0"});
  ASSERT_TRUE(started.ok()) << started.status();
  const ServerProcess& process = **started;
  const auto channel = Connect(process.tcp());
  PendingForward first(channel, EndlessForward(), absl::InfiniteDuration());
  PendingForward second(channel, EndlessForward(), absl::InfiniteDuration());
  ASSERT_TRUE(Eventually([&process] {
    return process.Metric("attnd_queue_requests") +
               process.Metric("attnd_running_requests") ==
           2;
  })) << process.log();
  // A third stays with the client; another connection has calls of its own.
  PendingForward third(channel, server::GoodForward());
  attn::v1::ForwardResponse response;
  for (int i = 0; i < 10; ++i) {
    const absl::Status other =
        Forward(Connect(process.tcp()), server::GoodForward(), response);
    EXPECT_TRUE(other.ok()) << other;
  }
  EXPECT_FALSE(third.WaitFor(absl::ZeroDuration())) << third.Wait();
  EXPECT_FALSE(first.WaitFor(absl::ZeroDuration())) << first.Wait();
  second.Cancel();
  EXPECT_TRUE(third.Wait().ok()) << third.Wait();
}

TEST(Flags, OutOfRangeExitsWithTwoAndNamesTheFlag) {
  for (const std::string flag : {"--port=65536",
                                 "--port=x",
                                 "--lanes=0",
                                 "--threads=-1",
                                 "--memory_limit=1MiB",
                                 "--memory_limit=lots",
                                 "--max_queue_requests=0",
                                 "--max_streams=0",
                                 "--drain_time=-1s",
                                 "--drain_time=soon",
                                 "--device=quantum",
                                 "--device=cuda:",
                                 "--device=cuda:x",
                                 "--device=cuda:0,0",
                                 "--host=0.0.0.0",
                                 "--host=127.example.com",
                                 "--unix_socket=@attnd",
                                 "--unix_socket_mode=rw",
                                 "--unix_socket_mode=0999",
                                 "--unix_socket_mode=7777",
                                 "--max_message=100GiB",
                                 "--no_such_flag=1"}) {
    const Ran ran = RunProgram({ATTND_BINARY, flag});
    EXPECT_EQ(ran.exit_status, 2) << flag << "\n" << ran.output;
    EXPECT_THAT(ran.output,
                ::testing::HasSubstr(flag.substr(0, flag.find('='))));
  }
}

TEST(Flags, AnEmptyValueIsNotTheNextFlag) {
  for (const std::string flag : {"--host", "--port_file", "--device",
                                 "--memory_limit", "--drain_time", "--port"}) {
    // Were it to go on, it would fail to listen.
    const Ran ran = RunProgram({ATTND_BINARY, flag + "=", "--port=-1"});
    EXPECT_EQ(ran.exit_status, 2) << flag << "\n" << ran.output;
    EXPECT_THAT(ran.output, ::testing::StartsWith(flag + ": "));
  }
  // Empty, that is none; and the port that follows is one that is refused.
  const Ran none = RunProgram({ATTND_BINARY, "--unix_socket=", "--port=-1"});
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_THAT(none.output, ::testing::HasSubstr("nothing to listen on"));
  EXPECT_FALSE(std::filesystem::exists("--port=-1"));
}

TEST(Flags, NumbersAreDecimal) {
  for (const std::string flag :
       {"--port=0x10", "--threads=0b1", "--memory_limit=0x10000000",
        "--max_queue_flops=0x1p40", "--max_streams=1e2"}) {
    const Ran ran = RunProgram({ATTND_BINARY, flag});
    EXPECT_EQ(ran.exit_status, 2) << flag << "\n" << ran.output;
    EXPECT_THAT(ran.output,
                ::testing::StartsWith(flag.substr(0, flag.find('='))));
  }
  // Out of range as a decimal number, and within it as an octal one.
  const Ran port = RunProgram({ATTND_BINARY, "--port=070000"});
  EXPECT_EQ(port.exit_status, 2);
  EXPECT_THAT(port.output, ::testing::HasSubstr("is 70000"));
}

TEST(Flags, AGpuThatIsNotThereIsAnErrorThatNamesTheFlag) {
  // More than any machine has.
  const Ran ran = RunProgram({ATTND_BINARY, "--port=0", "--device=cuda:4096"});
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_THAT(ran.output, ::testing::HasSubstr("--device=cuda:4096: "));
}

TEST(Flags, HelpAndVersionExitWithZero) {
  const Ran help = RunProgram({ATTND_BINARY, "--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.output, ::testing::HasSubstr("--memory_limit"));
  EXPECT_EQ(RunProgram({ATTND_BINARY, "--version"}).exit_status, 0);
}

}  // namespace
}  // namespace attnd::testing
