#include "client/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace attnd::client {
namespace {

// Listens, and accepts by hand.
class Listener {
 public:
  // As the system has it: an abstract name begins with a 0.
  explicit Listener(const std::string& path, int backlog = 8) : path_(path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
    const socklen_t size =
        offsetof(sockaddr_un, sun_path) + path.size() + (path[0] != 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, backlog), 0);
  }
  ~Listener() {
    close(fd_);
    unlink(path_.c_str());
  }

  int Accept() { return accept(fd_, nullptr, nullptr); }

 private:
  const std::string path_;
  int fd_;
};

std::string TestPath() {
  return ::testing::TempDir() + "attnd_unix_socket_" + std::to_string(getpid());
}

TEST(UnixSocketTest, KnowsWhichTargetsAreUnixSockets) {
  EXPECT_TRUE(UnixSocket::Names("unix:/tmp/x"));
  EXPECT_TRUE(UnixSocket::Names("unix:///tmp/x"));
  EXPECT_TRUE(UnixSocket::Names("unix-abstract:x"));
  EXPECT_FALSE(UnixSocket::Names("unix.example.com:7411"));
  EXPECT_FALSE(UnixSocket::Names("127.0.0.1:7411"));
}

TEST(UnixSocketTest, ConnectsByPathUriAndAbstractName) {
  const std::string path = TestPath();
  Listener by_path(path), abstract(std::string(1, '\0') + "attnd" + path);
  for (const auto& [target, listener] :
       std::vector<std::pair<std::string, Listener*>>{
           {"unix:" + path, &by_path},
           {"unix://" + path, &by_path},
           {"unix-abstract:attnd" + path, &abstract}}) {
    const auto socket = UnixSocket::Connect(target);
    ASSERT_TRUE(socket.ok()) << socket.status();
    const int peer = listener->Accept();
    const auto fd = (*socket)->Duplicate();
    ASSERT_TRUE(fd.ok()) << fd.status();
    EXPECT_EQ(write(*fd, "x", 1), 1);
    char byte = 0;
    EXPECT_EQ(read(peer, &byte, 1), 1);
    EXPECT_EQ(byte, 'x');
    close(*fd);
    close(peer);
  }
}

TEST(UnixSocketTest, NobodyThereOrNoRoomIsUnavailable) {
  const std::string path = TestPath();
  EXPECT_TRUE(
      absl::IsUnavailable(UnixSocket::Connect("unix:" + path).status()));
  Listener full(path, /*backlog=*/0);
  const auto first = UnixSocket::Connect("unix:" + path);
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(
      absl::IsUnavailable(UnixSocket::Connect("unix:" + path).status()));
}

TEST(UnixSocketTest, TooLongAPathIsInvalid) {
  const auto socket = UnixSocket::Connect("unix:/" + std::string(108, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(socket.status())) << socket.status();
}

TEST(UnixSocketTest, SeesThatThePeerHasClosed) {
  const std::string path = TestPath();
  Listener listener(path);
  const auto socket = UnixSocket::Connect("unix:" + path);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const int peer = listener.Accept();
  EXPECT_FALSE((*socket)->Closed());
  // Data that waits is no end.
  EXPECT_EQ(write(peer, "x", 1), 1);
  EXPECT_FALSE((*socket)->Closed());
  close(peer);
  EXPECT_TRUE((*socket)->Closed());
}

TEST(UnixSocketTest, ShutdownEndsAWriteThatIsStuck) {
  const std::string path = TestPath();
  Listener listener(path);
  const auto socket = UnixSocket::Connect("unix:" + path);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const int fd = *(*socket)->Duplicate();
  const std::vector<char> data(1 << 16);
  while (send(fd, data.data(), data.size(), MSG_NOSIGNAL) > 0) {
  }
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE((*socket)->Closed());
  (*socket)->Shutdown();
  EXPECT_TRUE((*socket)->Closed());
  EXPECT_EQ(send(fd, data.data(), data.size(), MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  close(fd);
}

}  // namespace
}  // namespace attnd::client
