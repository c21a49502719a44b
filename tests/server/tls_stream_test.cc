#include "base/tls/tls_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "server/tls/credentials.h"
#include "tests/certificates.h"
#include "tests/hang_limit.h"
#include "tests/tls_client.h"

namespace attnd::server::tls {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::kHangLimit;
using ::attnd::testing::MakeAuthority;
using ::attnd::testing::SelfSigned;
using ::attnd::testing::TlsClient;
using ::attnd::testing::TlsClientOptions;

// Waits until `fd` can be read or written; false: it hangs.
bool Await(int fd, short events) {  // NOLINT: poll's type
  pollfd polled = {fd, events, 0};
  return poll(&polled, 1,
              static_cast<int>(absl::ToInt64Milliseconds(kHangLimit))) == 1;
}

class TlsStreamTest : public ::testing::Test {
 protected:
  TlsStreamTest() {
    int pair[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    server_ = Descriptor(pair[0]);
    client_ = Descriptor(pair[1]);
  }
  ~TlsStreamTest() override {
    // Who waits there to read anything wakes up, as by closing it they do not.
    shutdown(client_.get(), SHUT_RD);
    if (peer_.joinable()) peer_.join();
  }

  // Both ends' handshake, the client's on a thread, which then does `talk`.
  TlsStream::Step Shake(const TlsClientOptions& client,
                        std::function<void(TlsClient&)> talk = nullptr) {
    CredentialFiles files{.certificate = "c", .key = "k"};
    if (asks_clients_) files.client_ca = "a";
    auto credentials = Credentials::Create(
        {own_.chain, own_.key, asks_clients_ ? authority_.chain : ""}, files);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    stream_ = TlsStream::Start(server_.get(), (*credentials)->NewConnection());
    peer_ = std::thread([this, client, talk = std::move(talk)] {
      TlsClient end(client_.get(), client);
      if (end.Handshake() && talk) talk(end);
      client_error_ = end.error();
      shutdown(client_.get(), SHUT_RDWR);
    });
    while (true) {
      const TlsStream::Step step = stream_->Handshake();
      if (step == TlsStream::Step::kDone || step == TlsStream::Step::kFailed) {
        return step;
      }
      const bool reads = step == TlsStream::Step::kWantsToRead;
      if (!Await(server_.get(), reads ? POLLIN : POLLOUT)) return step;
    }
  }
  // What the client was told.
  std::string ClientError() {
    server_ = Descriptor();
    peer_.join();
    return client_error_;
  }

  // All that comes, read into pieces of `piece` bytes, until the peer's end.
  std::string ReceiveAll(size_t piece) {
    std::string all;
    while (true) {
      std::string a(piece, '\0'), b(piece, '\0');
      const iovec into[] = {{a.data(), a.size()}, {b.data(), b.size()}};
      const ssize_t got = stream_->Receive(into);
      if (got == 0) return all;
      if (got < 0) {
        EXPECT_EQ(errno, EAGAIN);
        if (errno != EAGAIN || !Await(server_.get(), POLLIN)) return all;
        continue;
      }
      all += (a + b).substr(0, static_cast<size_t>(got));
    }
  }
  void SendAll(const std::vector<std::string>& pieces) {
    std::vector<iovec> left;
    for (const std::string& piece : pieces) {
      left.push_back({const_cast<char*>(piece.data()), piece.size()});
    }
    while (!left.empty()) {
      const ssize_t sent = stream_->Send(left);
      if (sent < 0) {
        ASSERT_EQ(errno, EAGAIN);
        ASSERT_TRUE(Await(server_.get(), POLLOUT));
        continue;
      }
      auto taken = static_cast<size_t>(sent);
      while (!left.empty() && taken >= left.front().iov_len) {
        taken -= left.front().iov_len;
        left.erase(left.begin());
      }
      if (left.empty()) break;
      left.front().iov_base = static_cast<char*>(left.front().iov_base) + taken;
      left.front().iov_len -= taken;
    }
  }

  const Identity authority_ = MakeAuthority("test CA");
  Identity own_ = Issue(authority_, {.dns = {"localhost"}});
  bool asks_clients_ = false;
  Descriptor server_, client_;
  std::unique_ptr<TlsStream> stream_;
  std::string client_error_;
  std::thread peer_;
};

std::string RandomBytes(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST_F(TlsStreamTest, CarriesBytesBothWays) {
  const std::string question = RandomBytes(3'000'000, 1);
  const std::string answer = RandomBytes(2'500'000, 2);
  std::string got;
  ASSERT_EQ(Shake({.ca = authority_.chain},
                  [&](TlsClient& client) {
                    EXPECT_EQ(client.version(), TLS1_3_VERSION);
                    EXPECT_TRUE(client.Send(question.substr(0, 10)));
                    EXPECT_TRUE(client.Send(question.substr(10)));
                    while (got.size() < answer.size()) {
                      const std::string some = client.Receive();
                      if (some.empty()) break;
                      got += some;
                    }
                  }),
            TlsStream::Step::kDone);
  std::string all;
  while (all.size() < question.size()) {
    std::string into(1'000'000, '\0');
    const iovec piece = {into.data(), into.size()};
    const ssize_t some = stream_->Receive({&piece, 1});
    if (some < 0) {
      ASSERT_EQ(errno, EAGAIN);
      ASSERT_TRUE(Await(server_.get(), POLLIN));
      continue;
    }
    ASSERT_GT(some, 0);
    all.append(into, 0, static_cast<size_t>(some));
  }
  EXPECT_EQ(all, question);
  // Pieces as gRPC has them: heads of frames, and payloads of any size.
  std::vector<std::string> pieces;
  std::mt19937 random(3);
  for (size_t at = 0; at < answer.size();) {
    const size_t size = random() % 2 == 0 ? 9 : random() % 100'000;
    pieces.push_back(answer.substr(at, size));
    at += pieces.back().size();
  }
  SendAll(pieces);
  peer_.join();
  EXPECT_EQ(got, answer);
}

TEST_F(TlsStreamTest, ReadsUntilThePeersEnd) {
  const std::string question = RandomBytes(100'000, 4);
  ASSERT_EQ(Shake({.ca = authority_.chain, .max_version = TLS1_2_VERSION},
                  [&](TlsClient& client) {
                    EXPECT_EQ(client.version(), TLS1_2_VERSION);
                    EXPECT_TRUE(client.Send(question));
                    client.End();
                  }),
            TlsStream::Step::kDone);
  EXPECT_EQ(ReceiveAll(7777), question);
}

// Somebody in between may have cut it off.
TEST_F(TlsStreamTest, AnEndThatThePeerDidNotSayIsAReset) {
  ASSERT_EQ(Shake({.ca = authority_.chain}), TlsStream::Step::kDone);
  peer_.join();
  char byte = 0;
  const iovec piece = {&byte, 1};
  EXPECT_EQ(stream_->Receive({&piece, 1}), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// Who waits until the socket can be read finds there what came with the
// handshake's last word.
TEST_F(TlsStreamTest, LeavesWhatFollowsTheHandshakeWithTheSocket) {
  ASSERT_EQ(Shake({.ca = authority_.chain},
                  [](TlsClient& client) {
                    EXPECT_TRUE(client.Send("hello"));
                    client.Receive();
                  }),
            TlsStream::Step::kDone);
  ASSERT_TRUE(Await(server_.get(), POLLIN));
  char bytes[16];
  const iovec piece = {bytes, sizeof(bytes)};
  EXPECT_EQ(stream_->Receive({&piece, 1}), 5);
  EXPECT_EQ(stream_->Receive({&piece, 1}), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(TlsStreamTest, SaysGoodbye) {
  bool ended_cleanly = false;
  ASSERT_EQ(Shake({.ca = authority_.chain},
                  [&](TlsClient& client) {
                    EXPECT_EQ(client.Receive(), "");
                    ended_cleanly = client.has_ended_cleanly();
                  }),
            TlsStream::Step::kDone);
  stream_->SayGoodbye();
  peer_.join();
  EXPECT_TRUE(ended_cleanly);
}

TEST_F(TlsStreamTest, SpeaksHttp2Only) {
  EXPECT_EQ(Shake({.ca = authority_.chain, .alpn = "http/1.1"}),
            TlsStream::Step::kFailed);
  EXPECT_THAT(ClientError(), ::testing::HasSubstr("no application protocol"));
}

TEST_F(TlsStreamTest, RefusesWhoDoesNotSayWhatItSpeaks) {
  EXPECT_EQ(Shake({.ca = authority_.chain, .alpn = ""}),
            TlsStream::Step::kFailed);
  EXPECT_THAT(ClientError(), ::testing::HasSubstr("no application protocol"));
}

TEST_F(TlsStreamTest, RefusesWhoDoesNotSpeakTls) {
  ASSERT_EQ(send(client_.get(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, 0), 24);
  auto credentials = Credentials::Create({own_.chain, own_.key, ""},
                                         {.certificate = "c", .key = "k"});
  ASSERT_TRUE(credentials.ok());
  stream_ = TlsStream::Start(server_.get(), (*credentials)->NewConnection());
  EXPECT_EQ(stream_->Handshake(), TlsStream::Step::kFailed);
  EXPECT_NE(stream_->failure(), "");
}

TEST_F(TlsStreamTest, KnowsItsClients) {
  asks_clients_ = true;
  const Identity client =
      Issue(authority_, {.uris = {"spiffe://cluster/trainer"}});
  ASSERT_EQ(Shake({.ca = authority_.chain,
                   .certificate = client.chain,
                   .key = client.key}),
            TlsStream::Step::kDone);
  ASSERT_NE(stream_->peer_certificate(), nullptr);
}

TEST_F(TlsStreamTest, RefusesClientsThatItDoesNotKnow) {
  asks_clients_ = true;
  const Identity foreign = Issue(MakeAuthority("test CA"), {});
  const Identity own = SelfSigned({});
  const Identity old =
      Issue(authority_, {.starts = -absl::Hours(2), .ends = -absl::Hours(1)});
  for (const Identity& client : {Identity(), foreign, own, old}) {
    int pair[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    if (peer_.joinable()) peer_.join();
    server_ = Descriptor(pair[0]);
    client_ = Descriptor(pair[1]);
    EXPECT_EQ(Shake({.ca = authority_.chain,
                     .certificate = client.chain,
                     .key = client.key}),
              TlsStream::Step::kFailed);
    EXPECT_NE(stream_->failure(), "");
  }
}

TEST_F(TlsStreamTest, AsksForTheVersionThatItIsTold) {
  auto credentials = Credentials::Create(
      {own_.chain, own_.key, ""},
      {.certificate = "c", .key = "k", .min_version = MinVersion::kTls13});
  ASSERT_TRUE(credentials.ok());
  stream_ = TlsStream::Start(server_.get(), (*credentials)->NewConnection());
  peer_ = std::thread([this] {
    TlsClient client(client_.get(), {.max_version = TLS1_2_VERSION});
    EXPECT_FALSE(client.Handshake());
  });
  TlsStream::Step step = TlsStream::Step::kWantsToRead;
  while (step == TlsStream::Step::kWantsToRead &&
         Await(server_.get(), POLLIN)) {
    step = stream_->Handshake();
  }
  EXPECT_EQ(step, TlsStream::Step::kFailed);
  EXPECT_EQ(stream_->failure(), "unsupported protocol");
  peer_.join();
}

}  // namespace
}  // namespace attnd::server::tls
