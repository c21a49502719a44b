#include "server/net/lingering_close.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "server/net/connection_table.h"
#include "tests/hang_limit.h"
#include "tests/server/socket_pairs.h"

namespace attnd::server {
namespace {

using testing::Eventually;
using testing::kHangLimit;

// Sends until the system takes no more, and returns how much it took.
size_t Fill(const Descriptor& fd) {
  const std::string bytes(64 << 10, 'x');
  size_t sent = 0;
  ssize_t count = 0;
  while ((count = send(fd.get(), bytes.data(), bytes.size(),
                       MSG_DONTWAIT | MSG_NOSIGNAL)) > 0) {
    sent += count;
  }
  return sent;
}

bool Sends(const Descriptor& fd) {
  return send(fd.get(), "x", 1, MSG_NOSIGNAL) == 1;
}

// What is received until the end, `*error` is 0 then, or until an error.
size_t ReceiveAll(const Descriptor& fd, int* error) {
  std::string bytes(64 << 10, ' ');
  size_t got = 0;
  ssize_t count = 0;
  while ((count = recv(fd.get(), bytes.data(), bytes.size(), 0)) > 0) {
    got += count;
  }
  *error = count == 0 ? 0 : errno;
  return got;
}

// Ends a connection as gRPC does.
void ShutDownAndClose(Descriptor& fd) {
  EXPECT_EQ(shutdown(fd.get(), SHUT_RDWR), 0);
  fd = Descriptor();
}

class LingeringCloseTest : public ::testing::TestWithParam<SocketPair (*)()> {
 protected:
  SocketPair Connect() {
    SocketPair pair = GetParam()();
    EXPECT_EQ(table_.Add(pair.server.get(), UserOrigin(1), MonotonicNow()),
              std::nullopt);
    return pair;
  }
  std::unique_ptr<LingeringClose> Start(absl::Duration longest = kHangLimit) {
    auto closing = LingeringClose::Start(table_, longest);
    EXPECT_TRUE(closing.ok()) << closing.status();
    return *std::move(closing);
  }
  static bool AllEnd(LingeringClose& closing) {
    return closing.WaitForNone(MonotonicNow() + kHangLimit, kHangLimit);
  }
  static bool AllHaveEnded(LingeringClose& closing) {
    return closing.WaitForNone(MonotonicNow(), kHangLimit);
  }

  ConnectionTable table_{1000, 1000};
};

TEST_P(LingeringCloseTest, ASlowPeerGetsAll) {
  const auto closing = Start();
  SocketPair pair = Connect();
  const size_t sent = Fill(pair.server);
  // Nobody reads these: one came before the end, the other comes after it.
  EXPECT_TRUE(Sends(pair.client));
  ShutDownAndClose(pair.server);
  EXPECT_TRUE(Sends(pair.client));
  EXPECT_FALSE(AllHaveEnded(*closing));
  int error = 0;
  EXPECT_EQ(ReceiveAll(pair.client, &error), sent);
  EXPECT_EQ(error, 0);
  // It is still heard.
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Sends(pair.client));
  pair.client = Descriptor();
  EXPECT_TRUE(AllEnd(*closing));
}

TEST_P(LingeringCloseTest, OthersEndAsTheSystemHasIt) {
  const auto closing = Start();
  SocketPair pair = GetParam()();
  EXPECT_FALSE(closing->End(pair.server.get()));
  EXPECT_FALSE(closing->End(-1));
  EXPECT_EQ(shutdown(-1, SHUT_RDWR), -1);
  EXPECT_EQ(errno, EBADF);
  ShutDownAndClose(pair.server);
  EXPECT_TRUE(AllHaveEnded(*closing));
  EXPECT_TRUE(Eventually([&] { return !Sends(pair.client); }));
}

TEST_P(LingeringCloseTest, OnlyTheWholeEndLingers) {
  const auto closing = Start();
  const SocketPair pair = Connect();
  EXPECT_EQ(shutdown(pair.server.get(), SHUT_RD), 0);
  EXPECT_EQ(shutdown(pair.server.get(), SHUT_WR), 0);
  EXPECT_TRUE(AllHaveEnded(*closing));
  EXPECT_EQ(shutdown(pair.server.get(), 17), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_P(LingeringCloseTest, WhoHasEndedNeedNotBeWaitedFor) {
  const auto closing = Start();
  SocketPair pair = Connect();
  pair.client = Descriptor();
  EXPECT_TRUE(Eventually([&] {
    char byte;
    return recv(pair.server.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }));
  ShutDownAndClose(pair.server);
  EXPECT_TRUE(AllHaveEnded(*closing));
}

TEST_P(LingeringCloseTest, WhoTookOverTheNumberIsLeftAlone) {
  const auto closing = Start();
  SocketPair gone = Connect();
  const SocketPair next = GetParam()();
  ASSERT_EQ(dup2(next.server.get(), gone.server.get()), gone.server.get());
  EXPECT_FALSE(closing->End(gone.server.get()));
}

TEST_P(LingeringCloseTest, NobodyLingersForEver) {
  const auto closing = Start(absl::Milliseconds(1));
  SocketPair pair = Connect();
  ShutDownAndClose(pair.server);
  EXPECT_TRUE(AllEnd(*closing));
  EXPECT_TRUE(Eventually([&] { return !Sends(pair.client); }));
}

TEST_P(LingeringCloseTest, WhoDoesNotStopSendingIsNotHeardForLong) {
  const auto closing = Start();
  SocketPair pair = Connect();
  ShutDownAndClose(pair.server);
  size_t sent = 0;
  EXPECT_TRUE(Eventually([&] {
    sent += Fill(pair.client);
    return !Sends(pair.client);
  }));
  EXPECT_GT(sent, LingeringClose::kMostDropped);
  EXPECT_TRUE(AllHaveEnded(*closing));
}

TEST_P(LingeringCloseTest, WhoDoesNothingIsWaitedForNoLonger) {
  const auto closing = Start();
  SocketPair pair = Connect();
  ShutDownAndClose(pair.server);
  EXPECT_FALSE(
      closing->WaitForNone(MonotonicNow() + kHangLimit, absl::Milliseconds(1)));
  // That ends nothing.
  EXPECT_TRUE(Sends(pair.client));
  EXPECT_FALSE(AllHaveEnded(*closing));
}

TEST_P(LingeringCloseTest, WhoCameFirstMakesRoom) {
  const auto closing = Start();
  std::vector<SocketPair> pairs;
  for (int i = 0; i <= LingeringClose::kMost; ++i) pairs.push_back(Connect());
  for (SocketPair& pair : pairs) ShutDownAndClose(pair.server);
  EXPECT_TRUE(Eventually([&] { return !Sends(pairs.front().client); }));
  pairs.erase(pairs.begin());
  for (const SocketPair& pair : pairs) EXPECT_TRUE(Sends(pair.client));
  pairs.clear();
  EXPECT_TRUE(AllEnd(*closing));
}

TEST_P(LingeringCloseTest, AllOfATableEndTogether) {
  const auto closing = Start();
  std::vector<SocketPair> pairs;
  for (int i = 0; i < 2 * LingeringClose::kMost; ++i) {
    pairs.push_back(Connect());
  }
  pairs.front().server = Descriptor();  // this one needs nobody
  const size_t sent = Fill(pairs.back().server);
  closing->EndAll();
  for (SocketPair& pair : pairs) {
    pair.server = Descriptor();
    EXPECT_TRUE(&pair == &pairs.front() || Sends(pair.client));
  }
  int error = 0;
  EXPECT_EQ(ReceiveAll(pairs.back().client, &error), sent);
  EXPECT_EQ(error, 0);
  pairs.clear();
  EXPECT_TRUE(AllEnd(*closing));
}

TEST_P(LingeringCloseTest, EachLooksAfterItsOwn) {
  ConnectionTable other(10, 10);
  const auto none = LingeringClose::Start(other, kHangLimit);
  ASSERT_TRUE(none.ok()) << none.status();
  const auto closing = Start();
  SocketPair pair = Connect();
  ShutDownAndClose(pair.server);
  EXPECT_TRUE(AllHaveEnded(**none));
  EXPECT_FALSE(AllHaveEnded(*closing));
}

// What it is for: without it the same peer loses what it has not read.
TEST(LingeringClose, WithoutItASlowPeerLosesTheRest) {
  SocketPair pair = TcpPair();
  const size_t sent = Fill(pair.server);
  EXPECT_TRUE(Sends(pair.client));
  EXPECT_TRUE(Eventually([&] {
    char byte;
    return recv(pair.server.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  }));
  ShutDownAndClose(pair.server);
  int error = 0;
  EXPECT_LT(ReceiveAll(pair.client, &error), sent);
  EXPECT_EQ(error, ECONNRESET);
}

INSTANTIATE_TEST_SUITE_P(Sockets, LingeringCloseTest,
                         ::testing::Values(&UnixPair, &TcpPair),
                         [](const auto& kind) {
                           return kind.index == 0 ? "Unix" : "Tcp";
                         });

}  // namespace
}  // namespace attnd::server
