#include "server/net/unix_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

class UnixSocketFileTest : public ::testing::Test {
 protected:
  UnixSocketFileTest() {
    std::string folder =
        std::filesystem::temp_directory_path() / "attnd.XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    path_ = folder_ + "/socket";
  }
  ~UnixSocketFileTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<UnixSocketFile> Claim() {
    auto file = UnixSocketFile::Claim(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::string Refusal() {
    const absl::Status status = UnixSocketFile::Claim(path_).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--unix_socket"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    return std::string(status.message());
  }
  // Binds a socket to the path, as another program would, and listens.
  Descriptor Listen() {
    Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    EXPECT_EQ(
        bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }
  bool Exists() { return std::filesystem::exists(path_); }
  // What is in the folder.
  int Files() {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<int>(std::distance(begin(all), end(all)));
  }

  std::string folder_, path_;
};

TEST_F(UnixSocketFileTest, IsRemovedWithItsLock) {
  auto file = Claim();
  const auto socket = file->Listen(0600);
  EXPECT_TRUE(socket.ok()) << socket.status();
  EXPECT_TRUE(Exists());
  file->Remove();
  EXPECT_EQ(Files(), 0);
  // Somebody else's by now.
  const Descriptor other = Listen();
  file->Remove();
  file.reset();
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocketFileTest, HasItsModeWhateverTheUmask) {
  for (const mode_t mask : {0, 022, 0777}) {
    for (const mode_t mode : {0600, 0660, 0777, 0}) {
      const mode_t before = umask(mask);
      auto file = Claim();
      const auto socket = file->Listen(mode);
      EXPECT_TRUE(socket.ok()) << socket.status();
      struct stat bound = {};
      ASSERT_EQ(stat(path_.c_str(), &bound), 0);
      EXPECT_EQ(bound.st_mode & 0777, mode);
      EXPECT_EQ(umask(before), mask);
    }
  }
}

TEST_F(UnixSocketFileTest, MayBeOfPacketsAndOfAGroup) {
  const gid_t group = geteuid() == 0 ? 1 : getgid();
  for (const mode_t mode : {0600, 0660, 0040}) {
    auto file = Claim();
    const auto socket = file->Listen(mode, SOCK_SEQPACKET, group);
    ASSERT_TRUE(socket.ok()) << socket.status();
    int type = 0;
    socklen_t size = sizeof(type);
    EXPECT_EQ(getsockopt(socket->get(), SOL_SOCKET, SO_TYPE, &type, &size), 0);
    EXPECT_EQ(type, SOCK_SEQPACKET);
    struct stat bound = {};
    ASSERT_EQ(stat(path_.c_str(), &bound), 0);
    EXPECT_EQ(bound.st_mode & 0777, mode);
    EXPECT_EQ(bound.st_gid, group);
  }
}

TEST_F(UnixSocketFileTest, AGroupThatItCannotBeGivenToIsNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root may give it to any group";
  const auto file = Claim();
  const auto socket = file->Listen(0660, SOCK_SEQPACKET, 1);
  EXPECT_TRUE(absl::IsUnavailable(socket.status())) << socket.status();
  EXPECT_THAT(std::string(socket.status().message()), HasSubstr("group 1"));
}

TEST_F(UnixSocketFileTest, NamesTheFlagThatSaysThePath) {
  const auto first = Claim();
  const absl::Status status =
      UnixSocketFile::Claim(path_, "--region_socket").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--region_socket: "));
}

TEST_F(UnixSocketFileTest, ALiveSocketOfPacketsIsNotTaken) {
  {
    Descriptor live(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    ASSERT_EQ(bind(live.get(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address)),
              0);
    ASSERT_EQ(listen(live.get(), 1), 0);
    EXPECT_THAT(Refusal(), HasSubstr("somebody else listens"));
  }
  // A stale one makes way.
  Claim();
}

TEST_F(UnixSocketFileTest, OfTwoWhoStartOneIsRefused) {
  auto first = Claim();
  EXPECT_THAT(Refusal(), HasSubstr("another server"));
  first.reset();
  Claim();
  EXPECT_EQ(Files(), 0);
}

TEST_F(UnixSocketFileTest, ALiveSocketIsNotTaken) {
  const Descriptor live = Listen();
  EXPECT_THAT(Refusal(), HasSubstr("somebody else listens"));
  // Also when its queue is full.
  EXPECT_THAT(Refusal(), HasSubstr("somebody else listens"));
  EXPECT_THAT(Refusal(), HasSubstr("somebody else listens"));
  EXPECT_EQ(Files(), 1);
}

TEST_F(UnixSocketFileTest, AStaleSocketMakesWay) {
  Listen();
  EXPECT_TRUE(Exists());
  const auto file = Claim();
  EXPECT_FALSE(Exists());
}

TEST_F(UnixSocketFileTest, WhatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "precious";
  EXPECT_THAT(Refusal(), HasSubstr("not a socket"));
  EXPECT_EQ(std::filesystem::file_size(path_), 8);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(Refusal(), HasSubstr("not a socket"));
  std::filesystem::remove(path_);
  // Not followed: what it leads to is not ours to remove.
  std::filesystem::create_symlink(folder_ + "/nowhere", path_);
  EXPECT_THAT(Refusal(), HasSubstr("not a socket"));
  EXPECT_EQ(Files(), 1);
}

TEST_F(UnixSocketFileTest, AFolderThatIsNotThereIsNamed) {
  path_ = folder_ + "/none/socket";
  EXPECT_THAT(Refusal(), HasSubstr("No such file"));
}

TEST_F(UnixSocketFileTest, APathThatIsTakenSinceIsNamed) {
  const auto file = Claim();
  std::ofstream(path_) << "precious";
  const auto socket = file->Listen(0600);
  EXPECT_TRUE(absl::IsUnavailable(socket.status())) << socket.status();
  EXPECT_THAT(std::string(socket.status().message()),
              HasSubstr(path_ + ": Address already in use"));
  file->Remove();
  EXPECT_EQ(std::filesystem::file_size(path_), 8);
}

}  // namespace
}  // namespace attnd::server
