#include "server/telemetry/metrics_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/registry.h"
#include "tests/hang_limit.h"

namespace attnd::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
// So many lines that no socket here takes them all unread.
constexpr int kManySeries = 50000;

// Waits for kHangLimit at most for whatever it does.
Descriptor Socket(bool small = false) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = absl::ToTimeval(testing::kHangLimit);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  const int bytes = 4096;
  if (small) {
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }
  return fd;
}

void Connect(const Descriptor& fd, int port) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
}

void Send(const Descriptor& fd, const std::string& bytes) {
  (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// All until the server closes. "cut" when it resets, or nothing comes.
std::string Receive(const Descriptor& fd) {
  std::string all;
  char buffer[65536];
  while (true) {
    const ssize_t n = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (n == 0) return all;
    if (n < 0) return "cut";
    all.append(buffer, n);
  }
}

class MetricsServerTest : public ::testing::Test {
 protected:
  void Start(int series = 1) {
    auto& family = prometheus::BuildCounter().Name("things").Register(*things_);
    for (int i = 0; i < series; ++i) family.Add({{"i", std::to_string(i)}});
    auto server = MetricsServer::Start("127.0.0.1", 0, things_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  Descriptor Connected(const std::string& sent, bool small = false) {
    Descriptor fd = Socket(small);
    Connect(fd, server_->port());
    Send(fd, sent);
    return fd;
  }
  std::string Ask(const std::string& request) {
    return Receive(Connected(request));
  }

  std::shared_ptr<prometheus::Registry> things_ =
      std::make_shared<prometheus::Registry>();
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, AnswersOnceAndCloses) {
  Start();
  const std::string answer = Ask(kGet);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; "
                                "charset=utf-8\r\n"));
  const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
  EXPECT_THAT(body, EndsWith("things{i=\"0\"} 0\n"));
  EXPECT_THAT(
      answer,
      HasSubstr("\r\nContent-Length: " + std::to_string(body.size()) + "\r\n"));
  EXPECT_THAT(Ask("GET /metrics?a=b HTTP/1.0\r\n\r\n"), EndsWith(body));
  EXPECT_THAT(Ask("GET http://host/metrics HTTP/1.1\r\n\r\n"), EndsWith(body));
  EXPECT_THAT(Ask("HEAD /metrics HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
}

TEST_F(MetricsServerTest, RefusesWhatItDoesNotServe) {
  Start();
  const auto expect = [this](const std::string& request, const char* status) {
    EXPECT_THAT(Ask(request), StartsWith(std::string("HTTP/1.1 ") + status))
        << request;
  };
  expect("GET / HTTP/1.1\r\n\r\n", "404 ");
  expect("GET /metrics/ HTTP/1.1\r\n\r\n", "404 ");
  expect("GET http://host HTTP/1.1\r\n\r\n", "404 ");
  expect("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 ");
  expect("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 ");
  expect("\r\n\r\n", "400 ");
  expect("GET /metrics\r\n\r\n", "400 ");
  expect("GET  /metrics HTTP/1.1\r\n\r\n", "400 ");
  expect(std::string("\0\xff /metrics\r\n\r\n", 15), "400 ");
  // Though most of what was sent is not read before the answer.
  expect(std::string(1 << 20, 'x'), "431 ");
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsServerTest, ARequestMayComeInPieces) {
  Start();
  const Descriptor fd = Connected("");
  for (const char* byte = kGet; *byte != '\0'; ++byte) {
    Send(fd, std::string(1, *byte));
  }
  EXPECT_THAT(Receive(fd), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsServerTest, ALargeAnswerArrivesWhole) {
  Start(kManySeries);
  const std::string answer = Receive(Connected(kGet, /*small=*/true));
  EXPECT_THAT(answer, EndsWith("} 0\n"));
  EXPECT_GT(answer.size(), kManySeries * 10);
}

TEST_F(MetricsServerTest, SlowPeersHoldUpNobody) {
  Start(1000);
  std::vector<Descriptor> slow;
  // More than there is room for: the oldest make way.
  for (int i = 0; i < kMaxHttpConnections + 44; i += 3) {
    slow.push_back(Connected(""));
    slow.push_back(Connected("GET /metrics HT"));
    slow.push_back(Connected(kGet, /*small=*/true));
    if (i % 50 < 3) {
      EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200 "));
    }
  }
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(Receive(slow.front()), "");
  // The last of them is still there.
  EXPECT_THAT(Receive(slow.back()), StartsWith("HTTP/1.1 200 "));
}

// Takes every descriptor that this process may have, up to 256 by now.
class AllDescriptors {
 public:
  AllDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {256, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    Take();
  }
  ~AllDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

  void Take() {
    do {
      taken_.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    } while (taken_.back().valid());
  }
  void GiveBack() { taken_.clear(); }

 private:
  rlimit before_ = {};
  std::vector<Descriptor> taken_;
};

TEST_F(MetricsServerTest, OutlastsALackOfDescriptors) {
  Start();
  // Accepted for certain, and not closed at this end.
  const Descriptor slow = Connected(kGet);
  EXPECT_THAT(Receive(slow), StartsWith("HTTP/1.1 200 "));
  Descriptor first = Socket();
  const Descriptor second = Socket();
  AllDescriptors all;
  // The server gives the slow peer's away.
  Connect(first, server_->port());
  Send(first, kGet);
  EXPECT_THAT(Receive(first), StartsWith("HTTP/1.1 200 "));
  first = Descriptor();
  // With none to give it waits until there are some again.
  all.Take();
  Connect(second, server_->port());
  Send(second, kGet);
  all.GiveBack();
  EXPECT_THAT(Receive(second), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsServerTest, AnAddressThatIsTakenIsUnavailable) {
  Start();
  const auto second =
      MetricsServer::Start("127.0.0.1", server_->port(), things_);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("127.0.0.1:" + std::to_string(server_->port())));
  // Nor is it one that the name has in the other family.
  EXPECT_TRUE(absl::IsUnavailable(
      MetricsServer::Start("localhost", server_->port(), things_).status()));
  // Reserved for documentation: no machine has it.
  EXPECT_TRUE(absl::IsUnavailable(
      MetricsServer::Start("192.0.2.1", 0, things_).status()));
}

TEST_F(MetricsServerTest, EndsWithConnectionsOpen) {
  Start();
  const Descriptor idle = Connected(""), half = Connected("GET");
  EXPECT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200 "));
  server_ = nullptr;
  EXPECT_EQ(Receive(idle), "");
}

}  // namespace
}  // namespace attnd::server
