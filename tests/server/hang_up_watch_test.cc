#include "server/net/hang_up_watch.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/descriptor.h"
#include "tests/hang_limit.h"
#include "tests/server/socket_pairs.h"

namespace attnd::server {
namespace {

using testing::Eventually;

// Sends `bytes` and, with the last of them, that there are no more.
void SendAndHangUp(Descriptor client, const std::string& bytes) {
  EXPECT_EQ(send(client.get(), bytes.data(), bytes.size(), MSG_MORE),
            std::ssize(bytes));
}

// What there is to read without waiting; `*ended`: and then the end.
std::string ReadAll(const Descriptor& fd, bool* ended) {
  std::string all;
  char bytes[100];
  ssize_t count = 0;
  while ((count = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    all.append(bytes, count);
  }
  *ended = count == 0;
  return all;
}

// Learns of what happens to a socket only once, as gRPC does.
class Owner {
 public:
  explicit Owner(const Descriptor& fd) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLET;
    EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event), 0);
  }
  bool IsTold() {
    epoll_event event = {};
    return epoll_wait(epoll_.get(), &event, 1, 0) == 1;
  }

 private:
  Descriptor epoll_;
};

class HangUpWatchTest : public ::testing::TestWithParam<SocketPair (*)()> {
 protected:
  void Add(const Descriptor& fd) {
    ASSERT_TRUE(watch_.valid());
    watch_.Add(fd.get());
  }
  bool SeesAHangUp() {
    return Eventually(
        [&] { return watch_.Look(now_) < absl::InfiniteDuration(); });
  }
  void WakeAfterASecond() {
    EXPECT_EQ(watch_.Look(now_), absl::Seconds(1));
    EXPECT_EQ(watch_.Look(now_ + absl::Seconds(1)), absl::InfiniteDuration());
  }

  const absl::Time now_ = absl::UnixEpoch();
  HangUpWatch watch_;
};

TEST_P(HangUpWatchTest, TellsAnOwnerWhoOverlookedTheEnd) {
  SocketPair pair = GetParam()();
  Add(pair.server);
  Owner owner(pair.server);
  SendAndHangUp(std::move(pair.client), "half");
  ASSERT_TRUE(SeesAHangUp());
  bool ended = false;
  std::string all;
  EXPECT_TRUE(Eventually([&] {
    all += ReadAll(pair.server, &ended);
    return ended;
  }));
  EXPECT_EQ(all, "half");
  // Whatever it was told so far, it has heard.
  while (owner.IsTold()) {
  }
  EXPECT_EQ(watch_.Look(now_ + absl::Milliseconds(999)), absl::Milliseconds(1));
  EXPECT_FALSE(owner.IsTold());
  WakeAfterASecond();
  EXPECT_TRUE(owner.IsTold());
  EXPECT_EQ(ReadAll(pair.server, &ended), "");
  EXPECT_TRUE(ended);
}

TEST_P(HangUpWatchTest, NoByteIsLost) {
  SocketPair pair = GetParam()();
  Add(pair.server);
  SendAndHangUp(std::move(pair.client), "all of it");
  ASSERT_TRUE(SeesAHangUp());
  WakeAfterASecond();
  bool ended = false;
  EXPECT_EQ(ReadAll(pair.server, &ended), "all of it");
  EXPECT_TRUE(ended);
}

TEST_P(HangUpWatchTest, WhoTookOverTheNumberIsLeftAlone) {
  SocketPair gone = GetParam()(), next = GetParam()();
  Add(gone.server);
  gone.client = Descriptor();
  ASSERT_TRUE(SeesAHangUp());
  ASSERT_EQ(dup2(next.server.get(), gone.server.get()), gone.server.get());
  WakeAfterASecond();
  bool ended = false;
  EXPECT_EQ(ReadAll(gone.server, &ended), "");
  EXPECT_FALSE(ended);
}

TEST_P(HangUpWatchTest, ThoseThatLiveOrAreClosedAreNone) {
  const SocketPair lives = GetParam()();
  SocketPair closed = GetParam()();
  Add(lives.server);
  Add(closed.server);
  EXPECT_EQ(send(lives.client.get(), "x", 1, 0), 1);
  closed.server = Descriptor();
  closed.client = Descriptor();
  EXPECT_EQ(watch_.Look(now_), absl::InfiniteDuration());
}

TEST_P(HangUpWatchTest, HearsOfMoreThanOneLookTakes) {
  std::vector<SocketPair> pairs;
  std::vector<Owner> owners;
  for (int i = 0; i < 150; ++i) {
    pairs.push_back(GetParam()());
    Add(pairs.back().server);
    owners.emplace_back(pairs.back().server);
    pairs.back().client = Descriptor();
    bool ended = false;
    EXPECT_TRUE(Eventually([&] {
      ReadAll(pairs.back().server, &ended);
      return ended;
    }));
    while (owners.back().IsTold()) {
    }
  }
  WakeAfterASecond();
  for (Owner& owner : owners) EXPECT_TRUE(owner.IsTold());
}

INSTANTIATE_TEST_SUITE_P(Sockets, HangUpWatchTest,
                         ::testing::Values(&UnixPair, &TcpPair),
                         [](const auto& kind) {
                           return kind.index == 0 ? "Unix" : "Tcp";
                         });

}  // namespace
}  // namespace attnd::server
