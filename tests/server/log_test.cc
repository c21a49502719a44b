#include "server/telemetry/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/temp_folder.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

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

  // Reads lines, without the time of day and the level, until one contains
  // `last`.
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
      const size_t level = unread_.find(' ') + 1;
      const size_t text = unread_.find(' ', level) + 1;
      lines.push_back(unread_.substr(text, end - text));
      unread_.erase(0, end + 1);
      if (absl::StrContains(lines.back(), last)) return lines;
    }
  }

  int pipe_[2] = {-1, -1};
  std::string unread_;
  std::unique_ptr<Log> log_;
};

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
  EXPECT_EQ(log_->stats()[static_cast<size_t>(LogSource::kServer)].by_reader,
            missed);
  // It goes on.
  log_->Write("more");
  EXPECT_THAT(ReadUntil("more"), SizeIs(1));
}

TEST_F(LogTest, LinesOfLibrariesAndCallsDoNotCrowdOutTheServers) {
  for (int i = 0; i < 5000; ++i) {
    log_->Write(std::string(100, '.'), Log::Source::kLibrary);
  }
  for (int i = 0; i < 5000; ++i) {
    log_->Write(std::string(100, '.'), Log::Source::kCall);
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
  const LogStats stats = log_->stats();
  EXPECT_EQ(stats[static_cast<size_t>(LogSource::kLibrary)].by_owner, 11);
  EXPECT_EQ(stats[static_cast<size_t>(LogSource::kLibrary)].by_reader, 0);
  EXPECT_EQ(stats[static_cast<size_t>(LogSource::kServer)].by_owner, 0);
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

TEST_F(LogTest, SaysTheTimeInUtcAndTheLevel) {
  log_->Write({LogLevel::kWarning, "mind", {{"bytes", int64_t{7}}}});
  EXPECT_TRUE(log_->Flush(absl::InfiniteDuration()));
  char bytes[4096];
  const ssize_t n = read(pipe_[0], bytes, sizeof(bytes));
  ASSERT_GT(n, 0);
  const std::string line(bytes, n);
  EXPECT_THAT(line, MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9:]+\\.[0-9]+Z "
                                 "warning mind bytes=7\n"));
  absl::Time time;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full,
                              line.substr(0, line.find(' ')), &time, nullptr));
  EXPECT_LT(absl::AbsDuration(absl::Now() - time), absl::Hours(1));
}

TEST_F(LogTest, WhatIsBelowItsLevelIsNotWritten) {
  log_->Write({LogLevel::kDebug, "too little"});
  log_->Write("enough");
  EXPECT_THAT(ReadUntil("enough"), ElementsAre("enough"));
}

// No file of the process may be longer than `bytes`, while this lives: a disk
// that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes)
      : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &old_), 0);
    const rlimit limit = {bytes, old_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &old_), 0);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  const sighandler_t old_handler_;
  rlimit old_ = {};
};

TEST(LogFileTest, LinesThatFindNoRoomAreToldOfOnceThereIsRoom) {
  attnd::testing::TempFolder folder;
  const std::string path = folder.File("log");
  const int fd =
      open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  auto log = Log::Start(fd);
  ASSERT_TRUE(log.ok()) << log.status();
  close(fd);
  {
    // Room for three lines and the first half of another. Each Flush has the
    // log try to say how many it has left out, in vain.
    const std::string start = "2026-11-30T12:34:56.789Z info ";
    const FileSizeLimit full(3 * (start.size() + 7) + start.size() + 3);
    for (int i = 0; i < 10; ++i) {
      (*log)->Write("a line");
      (*log)->Flush(absl::InfiniteDuration());
    }
  }
  (*log)->Write("room");
  EXPECT_TRUE((*log)->Flush(absl::InfiniteDuration()));

  std::ifstream file(path);
  std::vector<std::string> texts;
  for (std::string line; std::getline(file, line);) {
    texts.push_back(line.substr(line.find(' ', line.find(' ') + 1) + 1));
  }
  EXPECT_THAT(texts, UnorderedElementsAre("a line", "a line", "a line", "a l",
                                          "7 lines left out", "room"));
  EXPECT_EQ((*log)->stats()[static_cast<size_t>(LogSource::kServer)].by_reader,
            7);
}

TEST(LogStartTest, WithoutADescriptorNothingIsWritten) {
  auto log = Log::Start(-1);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write("nowhere");
  (*log)->Flush(absl::InfiniteDuration());
}

}  // namespace
}  // namespace attnd::server
