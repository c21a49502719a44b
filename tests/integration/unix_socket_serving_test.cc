// attnd on unix sockets: whose a path is, who may connect, and what is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {
namespace {

using ::testing::HasSubstr;

class UnixSocket : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ServerProcess>> Try(
      std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--unix_socket=" + path_, "--threads=1",
                               "--memory_limit=128MiB"});
    return ServerProcess::Start(ATTND_BINARY, flags);
  }
  std::unique_ptr<ServerProcess> Start(std::vector<std::string> flags = {}) {
    auto process = Try(std::move(flags));
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }
  void ExpectRefused(const std::string& why) {
    const auto process = Try();
    ASSERT_FALSE(process.ok());
    EXPECT_THAT(
        std::string(process.status().message()),
        HasSubstr("--unix_socket: cannot listen on " + path_ + ": " + why));
  }
  std::string HealthThere() { return Health(Connect("unix:" + path_)); }
  int Mode() {
    struct stat file = {};
    EXPECT_EQ(stat(path_.c_str(), &file), 0);
    return static_cast<int>(file.st_mode & 07777);
  }
  // Of the path and its lock, what there is.
  bool NothingIsLeft() {
    return !std::filesystem::exists(path_) &&
           !std::filesystem::exists(path_ + ".lock");
  }

  const TempFolder folder_;
  std::string path_ = folder_.File("attnd.socket");
};

TEST_F(UnixSocket, IsNotTakenFromAServerThatLives) {
  const auto first = Start();
  ExpectRefused("another server");
  // Nor from one that takes no lock.
  std::filesystem::remove(path_ + ".lock");
  ExpectRefused("somebody else listens there");
  EXPECT_EQ(HealthThere(), "SERVING");
}

TEST_F(UnixSocket, IsTakenFromAServerThatWasKilled) {
  const auto first = Start();
  first->Signal(SIGKILL);
  EXPECT_TRUE(first->Wait().has_value());
  EXPECT_TRUE(std::filesystem::exists(path_));
  const auto second = Start();
  EXPECT_EQ(HealthThere(), "SERVING");
}

TEST_F(UnixSocket, IsRemovedWhenTheServerEnds) {
  const auto process = Start();
  EXPECT_EQ(HealthThere(), "SERVING");
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0) << process->log();
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(UnixSocket, IsRemovedWhenASecondSignalEndsTheServer) {
  const auto process = Start({"--drain_time=1h", "--metrics_port=0"});
  // The drain would wait for it.
  PendingForward slow(Connect("unix:" + path_), EndlessForward(),
                      absl::InfiniteDuration());
  ASSERT_TRUE(Eventually([&] {
    return process->Metric("attnd_running_requests") == 1;
  })) << process->log();
  // Two that come before the first is seen count as one.
  do {
    process->Signal(SIGTERM);
  } while (!process->Wait(absl::Milliseconds(10)).has_value());
  EXPECT_EQ(process->Wait(absl::ZeroDuration()), 1) << process->log();
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(UnixSocket, IsLeftWhenItIsAnotherFileByThen) {
  const auto process = Start();
  std::filesystem::remove(path_);
  std::ofstream(path_) << "precious";
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(), 0) << process->log();
  EXPECT_EQ(std::filesystem::file_size(path_), 8);
}

TEST_F(UnixSocket, HasItsModeWhateverTheUmask) {
  const mode_t before = umask(0);
  {
    const auto process = Start();
    EXPECT_EQ(Mode(), 0600);
  }
  {
    const auto process = Start({"--unix_socket_mode=660"});
    EXPECT_EQ(Mode(), 0660);
  }
  umask(before);
}

TEST_F(UnixSocket, MayHaveAnyName) {
  path_ = folder_.File("a b%41#?=@socket");
  const auto process = Start();
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

TEST_F(UnixSocket, WhatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "precious";
  ExpectRefused("it is not a socket");
  EXPECT_EQ(std::filesystem::file_size(path_), 8);
}

}  // namespace
}  // namespace attnd::testing
