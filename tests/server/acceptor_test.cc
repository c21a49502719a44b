#include "server/net/acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "server/net/listen.h"
#include "server/net/unix_socket.h"
#include "tests/hang_limit.h"

namespace attnd::server {
namespace {

using testing::Eventually;

// Lowers what this process may have to `descriptors` for as long as it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t descriptors) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low = {descriptors, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// Waits for kHangLimit at most for whatever it does.
Descriptor Connect(sockaddr* to, socklen_t size) {
  Descriptor fd(socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = absl::ToTimeval(testing::kHangLimit);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  EXPECT_EQ(connect(fd.get(), to, size), 0) << std::strerror(errno);
  return fd;
}

// 127.0.0.`host`.
Descriptor ConnectFrom(int host, int port) {
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = absl::ToTimeval(testing::kHangLimit);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(port);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  return fd;
}

// Whether it says hello, as who gets a connection here does; false: closed.
bool IsServed(const Descriptor& fd) {
  char byte = 0;
  return recv(fd.get(), &byte, 1, 0) == 1;
}

// Whether it is neither served nor closed for this long.
bool IsHeldFor(const Descriptor& fd, absl::Duration duration) {
  const timeval none = {}, timeout = absl::ToTimeval(duration);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  char byte = 0;
  const bool held = recv(fd.get(), &byte, 1, MSG_PEEK) < 0 &&
                    (errno == EAGAIN || errno == EWOULDBLOCK);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
  return held;
}

class AcceptorTest : public ::testing::Test {
 protected:
  void Start(int most, int most_per_client) {
    auto tcp = ListenOnTcp("127.0.0.1", 0, absl::Seconds(10));
    ASSERT_TRUE(tcp.ok()) << tcp.status();
    port_ = tcp->port;
    std::vector<Door> doors;
    doors.push_back({std::move(tcp->sockets.at(0)), HandOver()});
    StartAt(std::move(doors), most, most_per_client);
  }
  void StartAt(std::vector<Door> doors, int most, int most_per_client) {
    table_ = std::make_unique<ConnectionTable>(most, most_per_client);
    auto acceptor = Acceptor::Start(
        std::move(doors), *table_, [this](Refusal why, const Origin& origin) {
          MutexLock lock(mutex_);
          refused_.emplace_back(why, ToString(origin));
        });
    ASSERT_TRUE(acceptor.ok()) << acceptor.status();
    acceptor_ = *std::move(acceptor);
  }
  // To this test, which keeps it.
  std::function<void(Descriptor, const Origin&)> HandOver() {
    return [this](Descriptor fd, const Origin&) {
      MutexLock lock(mutex_);
      kept_.push_back(std::move(fd));
      // Whoever hears of it finds it kept.
      EXPECT_EQ(send(kept_.back().get(), "x", 1, MSG_NOSIGNAL), 1);
    };
  }
  // Ends what was handed over.
  void CloseAll() {
    MutexLock lock(mutex_);
    kept_.clear();
  }
  std::vector<std::pair<Refusal, std::string>> Refused() {
    MutexLock lock(mutex_);
    return refused_;
  }
  int64_t CountRefused(Refusal why) {
    return table_->stats().refused[static_cast<int>(why)];
  }

  int port_ = -1;
  Mutex mutex_;
  std::vector<Descriptor> kept_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<Refusal, std::string>> refused_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ConnectionTable> table_;
  std::unique_ptr<Acceptor> acceptor_;  // ends first
};

TEST_F(AcceptorTest, HandsOverWhoeverConnects) {
  Start(10, 10);
  std::vector<Descriptor> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(ConnectFrom(1, port_));
    EXPECT_TRUE(IsServed(clients.back()));
  }
  EXPECT_EQ(table_->stats().open, 10);
  EXPECT_EQ(table_->stats().accepted, 10);
  CloseAll();
  EXPECT_EQ(table_->stats().open, 0);
  for (const Descriptor& client : clients) EXPECT_FALSE(IsServed(client));
}

TEST_F(AcceptorTest, HandsOverWhoConnectedBeforeItStarted) {
  auto tcp = ListenOnTcp("127.0.0.1", 0, absl::Seconds(10));
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  const Descriptor client = ConnectFrom(1, tcp->port);
  std::vector<Door> doors;
  doors.push_back({std::move(tcp->sockets.at(0)), HandOver()});
  StartAt(std::move(doors), 1, 1);
  EXPECT_TRUE(IsServed(client));
}

TEST_F(AcceptorTest, ClosesWhoIsTooMany) {
  Start(3, 2);
  const Descriptor a = ConnectFrom(1, port_), b = ConnectFrom(1, port_),
                   c = ConnectFrom(1, port_), d = ConnectFrom(2, port_),
                   e = ConnectFrom(3, port_);
  EXPECT_TRUE(IsServed(a));
  EXPECT_TRUE(IsServed(b));
  EXPECT_FALSE(IsServed(c));
  EXPECT_TRUE(IsServed(d));
  EXPECT_FALSE(IsServed(e));
  EXPECT_THAT(
      Refused(),
      ::testing::ElementsAre(
          ::testing::Pair(Refusal::kMaxConnectionsPerClient, "127.0.0.1"),
          ::testing::Pair(Refusal::kMaxConnections, "127.0.0.3")));
  EXPECT_EQ(table_->stats().accepted, 3);
  CloseAll();
  EXPECT_TRUE(Eventually([&] { return IsServed(ConnectFrom(3, port_)); }));
}

TEST_F(AcceptorTest, CountsPeersOfAUnixSocketByUser) {
  std::string folder = std::filesystem::temp_directory_path() / "attnd.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/socket";
  auto file = UnixSocketFile::Claim(path);
  ASSERT_TRUE(file.ok()) << file.status();
  auto socket = (*file)->Listen(0600);
  ASSERT_TRUE(socket.ok()) << socket.status();
  std::vector<Door> doors;
  doors.push_back({*std::move(socket), HandOver()});
  StartAt(std::move(doors), 10, 2);
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::strcpy(to.sun_path, path.c_str());
  std::vector<Descriptor> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(Connect(reinterpret_cast<sockaddr*>(&to), sizeof(to)));
    EXPECT_EQ(IsServed(clients.back()), i < 2);
  }
  EXPECT_THAT(Refused(), ::testing::ElementsAre(
                             ::testing::Pair(Refusal::kMaxConnectionsPerClient,
                                             absl::StrCat("user ", getuid()))));
  acceptor_ = nullptr;
  file->reset();
  std::filesystem::remove_all(folder);
}

// gRPC's own listener never accepts again after that.
TEST_F(AcceptorTest, OutlivesTheLastDescriptor) {
  constexpr int kClients = 40;
  Start(1000, 1000);
  std::vector<Descriptor> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port_);
  {
    // Room for some of them; what is open already does not count.
    const DescriptorLimit limit(clients.back().get() + 11);
    for (const Descriptor& client : clients) {
      EXPECT_EQ(
          connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
          0);
    }
    // None waits in vain: each is served or closed.
    int served = 0;
    for (const Descriptor& client : clients) served += IsServed(client);
    EXPECT_GT(served, 0);
    EXPECT_LT(served, kClients);
    EXPECT_EQ(CountRefused(Refusal::kNoDescriptor), kClients - served);
    EXPECT_EQ(table_->stats().open, served);
    // Still without a descriptor, and with some again.
    clients.pop_back();
    EXPECT_FALSE(IsServed(ConnectFrom(1, port_)));
    CloseAll();
    EXPECT_TRUE(IsServed(ConnectFrom(1, port_)));
  }
  EXPECT_TRUE(IsServed(ConnectFrom(1, port_)));
}

TEST_F(AcceptorTest, OutlivesItsReserve) {
  Start(1000, 1000);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port_);
  // Below what the reserve has: closing that frees no number that may be had.
  // With 1, what the acceptor waits for is more than may be polled.
  int64_t refused = 0;
  for (const rlim_t few : {3, 1}) {
    const Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    {
      const DescriptorLimit limit(few);
      EXPECT_EQ(
          connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
          0);
      EXPECT_TRUE(IsHeldFor(client, absl::Milliseconds(20)));
    }
    // The acceptor may be between the reserve it gave up and accepting with it
    // while the limit rises: it then takes the client for one too many.
    if (!IsServed(client)) ++refused;
    EXPECT_EQ(CountRefused(Refusal::kNoDescriptor), refused);
    EXPECT_TRUE(IsServed(ConnectFrom(1, port_)));
  }
}

TEST_F(AcceptorTest, EndsWithoutDescriptors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer looks at memory through a descriptor";
#endif
  Start(1000, 1000);
  const Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port_);
  const DescriptorLimit limit(1);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
            0);
  acceptor_ = nullptr;
}

TEST_F(AcceptorTest, EndsWhileConnectionsGoOn) {
  Start(10, 10);
  const Descriptor client = ConnectFrom(1, port_);
  EXPECT_TRUE(IsServed(client));
  acceptor_ = nullptr;
  {
    MutexLock lock(mutex_);
    ASSERT_EQ(kept_.size(), 1);
    EXPECT_EQ(send(kept_[0].get(), "y", 1, MSG_NOSIGNAL), 1);
  }
  EXPECT_TRUE(IsServed(client));
  // Nobody listens.
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port_);
  const Descriptor late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(connect(late.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
            0);
}

}  // namespace
}  // namespace attnd::server
