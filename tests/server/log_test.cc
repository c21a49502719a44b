#include "server/telemetry/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::SizeIs;

// How many lines a line says are missing.
int64_t LeftOut(const std::string& line) {
  int64_t lines = 0;
  return absl::EndsWith(line, "left out") &&
                 absl::SimpleAtoi(line.substr(0, line.find(' ')), &lines)
             ? lines
             : 0;
}

// A pipe, which takes 4 KiB until somebody reads, and a log on it.
class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(pipe_[1], F_SETPIPE_SZ, 4096), 4096);
    auto log = Log::Start(pipe_[1]);
    EXPECT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
    close(pipe_[1]);
  }
  ~LogTest() override { CloseReader(); }

  void CloseReader() {
    if (pipe_[0] >= 0) close(pipe_[0]);
    pipe_[0] = -1;
  }

  // Reads lines, without the time of day, until one contains `last`.
  std::vector<std::string> ReadUntil(absl::string_view last) {
    std::vector<std::string> lines;
    while (true) {
      const size_t end = unread_.find('\n');
      if (end == std::string::npos) {
        char bytes[4096];
        const ssize_t n = read(pipe_[0], bytes, sizeof(bytes));
        if (n <= 0) return lines;
        unread_.append(bytes, n);
        continue;
      }
      lines.push_back(unread_.substr(kStampBytes - 1, end - kStampBytes + 1));
      unread_.erase(0, end + 1);
      if (absl::StrContains(lines.back(), last)) return lines;
    }
  }

  int pipe_[2] = {-1, -1};
  std::string unread_;
  std::unique_ptr<Log> log_;
};

TEST(PrintableTest, EveryByteIsPrintedOrEscaped) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string line = Printable(all);
  for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << int{c};
  EXPECT_EQ(Printable("a\nb\r\x1b[31m\x7f\x80\xff\0"),
            "a\\x0ab\\x0d\\x1b[31m"
            "\\x7f\\x80\\xff");
  // No text looks like an escaped one.
  EXPECT_EQ(Printable("\\x0a"), "\\x5cx0a");
  EXPECT_EQ(Printable(std::string(1, '\0')), "\\x00");
}

TEST(PrintableTest, ALongLineIsCut) {
  EXPECT_EQ(Printable(std::string(kMaxLineBytes, 'a')).size(), kMaxLineBytes);
  const std::string cut = Printable(std::string(1 << 20, '\n'));
  EXPECT_LE(cut.size(), kMaxLineBytes + 7);
  EXPECT_THAT(cut, EndsWith("..."));
}

TEST_F(LogTest, WritesLinesInOrderWithTheTimeOfDay) {
  log_->Write("one");
  log_->Write("two\nthree", Log::Source::kLibrary);
  EXPECT_TRUE(log_->Flush(absl::InfiniteDuration()));
  EXPECT_THAT(ReadUntil("three"), ElementsAre("one", "two\\x0athree"));
}

TEST_F(LogTest, AStoppedReaderHoldsNobodyUpAndLearnsHowManyLinesItMissed) {
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) {
    log_->Write(absl::StrCat("line ", i, std::string(100, '.')));
  }
  EXPECT_FALSE(log_->Flush(absl::Milliseconds(10)));
  int64_t written = 0, missed = 0;
  while (written + missed < kLines) {
    const std::vector<std::string> lines = ReadUntil(" lines left out");
    written += lines.size() - 1;
    missed += LeftOut(lines.back());
  }
  EXPECT_EQ(written + missed, kLines);
  EXPECT_GT(missed, 0);
  // It goes on.
  log_->Write("more");
  EXPECT_THAT(ReadUntil("more"), SizeIs(1));
}

TEST_F(LogTest, ALibrarysLinesDoNotCrowdOutTheServers) {
  for (int i = 0; i < 5000; ++i) {
    log_->Write(std::string(100, '.'), Log::Source::kLibrary);
  }
  log_->Write("device cpu:0 is out of service");
  EXPECT_THAT(ReadUntil("device").back(), "device cpu:0 is out of service");
}

TEST_F(LogTest, TellsOfLinesThatItsOwnersLeftOut) {
  log_->LeftOut(Log::Source::kLibrary, 7);
  log_->LeftOut(Log::Source::kLibrary, 4);
  EXPECT_TRUE(log_->Flush(absl::InfiniteDuration()));
  log_->Write("end");
  int64_t told = 0;
  for (const std::string& line : ReadUntil("end")) told += LeftOut(line);
  EXPECT_EQ(told, 11);
}

TEST_F(LogTest, AReaderThatHasGoneEndsNothing) {
  CloseReader();
  for (int i = 0; i < 10; ++i) {
    log_->Write("nobody reads this");
    log_->Flush(absl::InfiniteDuration());
  }
}

TEST_F(LogTest, IsLeftWhileAWriteIsStuck) {
  for (int i = 0; i < 100; ++i) log_->Write(std::string(100, '.'));
  EXPECT_FALSE(log_->Flush(absl::Milliseconds(10)));
  log_.reset();
}

TEST(LogStartTest, WithoutADescriptorNothingIsWritten) {
  auto log = Log::Start(-1);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write("nowhere");
  (*log)->Flush(absl::InfiniteDuration());
}

}  // namespace
}  // namespace attnd::server
