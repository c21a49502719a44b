// A client's connection as gRPC would read and write it, with a server by
// OpenSSL alone.

#include "client/tls_guard/client_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "client/tls_guard/client_context.h"
#include "tests/certificates.h"
#include "tests/hang_limit.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::MakeAuthority;
using ::testing::StartsWith;

int ChooseHttp2(SSL*, const unsigned char** chosen, unsigned char* bytes,
                const unsigned char* offered, unsigned int offered_bytes,
                void*) {
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  unsigned char* match = nullptr;
  if (SSL_select_next_proto(&match, bytes, kHttp2, sizeof(kHttp2), offered,
                            offered_bytes) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = match;
  return SSL_TLSEXT_ERR_OK;
}

SslContextPtr ServerContext(const Identity& identity, bool speaks_http2) {
  SslContextPtr context(SSL_CTX_new(TLS_server_method()));
  const auto reader = [](const std::string& pem) {
    return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  };
  const X509Ptr certificate(PEM_read_bio_X509(reader(identity.chain).get(),
                                              nullptr, nullptr, nullptr));
  const KeyPtr key(PEM_read_bio_PrivateKey(reader(identity.key).get(), nullptr,
                                           nullptr, nullptr));
  EXPECT_EQ(SSL_CTX_use_certificate(context.get(), certificate.get()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context.get(), key.get()), 1);
  if (speaks_http2) {
    SSL_CTX_set_alpn_select_cb(context.get(), ChooseHttp2, nullptr);
  }
  return context;
}

class ClientGuardTest : public ::testing::Test {
 protected:
  ClientGuardTest() {
    // OpenSSL writes to sockets as to files, and a client may have gone.
    std::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    client_ = Descriptor(ends[0]);
    server_ = Descriptor(ends[1]);
  }
  ~ClientGuardTest() override {
    // Whoever still reads is told that this was all.
    shutdown(client_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }

  void Connect(const std::string& name = "localhost") {
    const SslContextPtr context = MakeClientContext({.authorities = ca_.chain});
    guard_ = std::make_unique<ClientGuard>(
        TlsStream::Start(client_.get(), NewConnection(context.get(), name)),
        name, [this](std::string why) {
          ++reports_;
          failure_ = std::move(why);
        });
  }
  // Answers what comes with the same.
  void Serve(const Identity& identity, bool speaks_http2 = true) {
    thread_ = std::thread([this, identity, speaks_http2] {
      const SslContextPtr context = ServerContext(identity, speaks_http2);
      const SslPtr ssl(SSL_new(context.get()));
      SSL_set_fd(ssl.get(), server_.get());
      if (SSL_accept(ssl.get()) == 1) {
        std::string bytes(64 << 10, '\0');
        int got = 0;
        while ((got = SSL_read(ssl.get(), bytes.data(),
                               static_cast<int>(bytes.size()))) > 0) {
          if (SSL_write(ssl.get(), bytes.data(), got) != got) break;
        }
      }
      shutdown(server_.get(), SHUT_WR);
    });
  }

  ssize_t Send(const std::string& bytes, size_t from = 0) {
    iovec piece = {const_cast<char*>(bytes.data()) + from, bytes.size() - from};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return guard_->Send(&message, MSG_NOSIGNAL);
  }
  // As recvmsg, into `to`, once there is something to be told.
  ssize_t Receive(std::string& to) {
    while (true) {
      to.resize(100000);
      iovec piece = {to.data(), to.size()};
      msghdr message = {};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      const ssize_t got = guard_->Receive(&message, 0);
      const int error = errno;
      to.resize(got < 0 ? 0 : static_cast<size_t>(got));
      errno = error;
      if (got >= 0 || error != EAGAIN) return got;
      pollfd polled = {client_.get(), POLLIN, 0};
      const auto limit = absl::ToInt64Milliseconds(testing::kHangLimit);
      if (poll(&polled, 1, static_cast<int>(limit)) != 1) return -1;
    }
  }
  void ExpectFailure(const std::string& why) {
    EXPECT_GT(Send("what a call says"), 0);
    std::string received;
    EXPECT_EQ(Receive(received), -1);
    EXPECT_EQ(errno, ECONNRESET);
    EXPECT_EQ(Send("more"), -1);
    EXPECT_EQ(errno, ECONNRESET);
    EXPECT_THAT(failure_, StartsWith(why));
    EXPECT_EQ(reports_, 1);
  }

  const Identity ca_ = MakeAuthority("test CA");
  const Identity own_ =
      Issue(ca_, {.dns = {"localhost"}, .ips = {"127.0.0.1", "::1"}});
  Descriptor client_, server_;
  std::unique_ptr<ClientGuard> guard_;
  std::string failure_ = "nothing was reported";
  int reports_ = 0;
  std::thread thread_;
};

TEST_F(ClientGuardTest, SendsWhatItKeptOnceTheServerIsKnown) {
  Connect();
  EXPECT_EQ(Send("the preface, "), 13);
  EXPECT_EQ(Send("the settings"), 12);
  EXPECT_EQ(reports_, 0);
  Serve(own_);
  std::string all, some;
  while (all.size() < 25 && Receive(some) > 0) all += some;
  EXPECT_EQ(all, "the preface, the settings");
  EXPECT_EQ(failure_, "");
  EXPECT_EQ(reports_, 1);
}

TEST_F(ClientGuardTest, SendsNothingInClear) {
  Connect();
  EXPECT_EQ(Send("authorization: Bearer"), 21);
  std::string wire(10000, '\0');
  wire.resize(static_cast<size_t>(
      std::max<ssize_t>(recv(server_.get(), wire.data(), wire.size(), 0), 0)));
  EXPECT_THAT(wire, StartsWith("\x16\x03"));
  EXPECT_FALSE(absl::StrContains(wire, "Bearer"));
  EXPECT_EQ(recv(server_.get(), wire.data(), wire.size(), MSG_DONTWAIT), -1);
}

TEST_F(ClientGuardTest, CarriesMegabytesBothWays) {
  Connect();
  Serve(own_);
  std::string sent(8 << 20, '\0');
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<char>(i * 31 >> 8);
  }
  // The handshake, before a thread of its own sends.
  EXPECT_EQ(Send("go"), 2);
  std::string all, some;
  while (all.size() < 2 && Receive(some) > 0) all += some;
  std::thread sender([&] {
    for (size_t at = 0; at < sent.size();) {
      const ssize_t bytes = Send(sent, at);
      if (bytes < 0) {
        ASSERT_EQ(errno, EAGAIN);
        pollfd polled = {client_.get(), POLLOUT, 0};
        ASSERT_EQ(poll(&polled, 1, -1), 1);
        continue;
      }
      at += static_cast<size_t>(bytes);
    }
  });
  while (all.size() < sent.size() + 2 && Receive(some) > 0) all += some;
  sender.join();
  EXPECT_TRUE(all == "go" + sent);
}

class ClientGuardNameTest : public ClientGuardTest,
                            public ::testing::WithParamInterface<const char*> {
};

TEST_P(ClientGuardNameTest, IsKnown) {
  Connect(GetParam());
  Serve(own_);
  EXPECT_EQ(Send("x"), 1);
  std::string got;
  EXPECT_EQ(Receive(got), 1) << failure_;
}

INSTANTIATE_TEST_SUITE_P(Names, ClientGuardNameTest,
                         ::testing::Values("localhost", "127.0.0.1", "::1"));

TEST_F(ClientGuardTest, RefusesAnotherName) {
  Connect("other.test");
  Serve(own_);
  ExpectFailure("Peer name other.test is not in peer certificate");
}

TEST_F(ClientGuardTest, RefusesAnotherAddress) {
  Connect("127.0.0.2");
  Serve(own_);
  ExpectFailure("Peer name 127.0.0.2 is not in peer certificate");
}

// As gRPC refuses it: one of w*.test is for no name.
TEST_F(ClientGuardTest, RefusesHalfAWildcard) {
  Connect("www.name.test");
  Serve(Issue(ca_, {.dns = {"w*.name.test"}}));
  ExpectFailure("Peer name www.name.test is not in peer certificate");
}

TEST_F(ClientGuardTest, SaysWhyACertificateIsRefused) {
  Connect();
  Serve(Issue(ca_, {.dns = {"localhost"},
                    .starts = -absl::Hours(2),
                    .ends = -absl::Hours(1)}));
  ExpectFailure("certificate verify failed: certificate has expired");
}

TEST_F(ClientGuardTest, RefusesWhomNoAuthorityKnows) {
  Connect();
  Serve(Issue(MakeAuthority("foreign CA"), {.dns = {"localhost"}}));
  ExpectFailure("certificate verify failed: ");
}

TEST_F(ClientGuardTest, RefusesWhoDoesNotSpeakHttp2) {
  Connect();
  Serve(own_, /*speaks_http2=*/false);
  ExpectFailure("missing selected ALPN property");
}

TEST_F(ClientGuardTest, FailsWithAConnectionThatEnds) {
  Connect();
  EXPECT_GT(Send("the preface"), 0);
  shutdown(server_.get(), SHUT_WR);
  std::string received;
  EXPECT_EQ(Receive(received), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(failure_, "the connection ended");
  EXPECT_EQ(reports_, 1);
}

}  // namespace
}  // namespace attnd::client
