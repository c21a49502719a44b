// TLS over real ports: who is trusted, and what a user reads when nobody is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/raw_tls_server.h"
#include "tests/client/tls_server.h"
#include "tests/client/tls_ways.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::KeyKind;
using ::attnd::testing::MakeAuthority;
using ::attnd::testing::MakeIntermediate;
using ::attnd::testing::SelfSigned;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNotAccepted[] =
    "the server's certificate was not accepted: either no authority (CA) that "
    "the client trusts has signed it, or it is not valid at this time";

class GrpcTlsTest : public TlsWays {
 protected:
  static testing::CertificateOptions ForLoopback() {
    return {.dns = {"localhost"}, .ips = {"127.0.0.1"}};
  }
  // A client that trusts `ca`, and shows `own` if there is one.
  static ClientOptions Trusting(const Identity& ca, const Identity& own = {}) {
    ClientOptions options = OneAttempt();
    options.tls.enabled = true;
    options.tls.ca_pem = ca.chain;
    options.tls.certificate_pem = own.chain;
    options.tls.key_pem = own.key;
    return options;
  }
  static void ExpectUnavailable(const absl::Status& status,
                                const std::string& lead) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith(lead));
  }

  const Identity ca_ = MakeAuthority("test CA");
  const Identity foreign_ca_ = MakeAuthority("foreign CA");
};

TEST_P(GrpcTlsTest, AServerThatAnAuthoritySignedIsTrusted) {
  for (const KeyKind kind : {KeyKind::kEcP256, KeyKind::kRsa2048}) {
    testing::CertificateOptions certificate = ForLoopback();
    certificate.key = kind;
    TlsServer server(Issue(ca_, certificate));
    for (const char* host : {"127.0.0.1", "localhost"}) {
      const absl::Status status =
          Call(absl::StrCat(host, ":", server.port()), Trusting(ca_));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  TlsServer behind(Issue(MakeIntermediate(ca_, "between"), ForLoopback()));
  EXPECT_TRUE(Call(behind.address(), Trusting(ca_)).ok());
}

TEST_P(GrpcTlsTest, TensorsGoOverTlsOnEveryConnection) {
  TlsServer server(Issue(ca_, ForLoopback()));
  ClientOptions options = Trusting(ca_);
  options.connections = 3;
  const auto client = Client::Create(server.address(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 0; i < 6; ++i) {
    SmallForward forward;
    const auto report = (*client)->Forward(forward.call, {testing::kHangLimit});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(forward.o, forward.q);
  }
}

TEST_P(GrpcTlsTest, AServerWhomNobodyKnowsIsRefused) {
  TlsServer self_signed(SelfSigned(ForLoopback()));
  ExpectUnavailable(Call(self_signed.address(), Trusting(ca_)), kNotAccepted);
  TlsServer foreign(Issue(foreign_ca_, ForLoopback()));
  ExpectUnavailable(Call(foreign.address(), Trusting(ca_)), kNotAccepted);
  EXPECT_TRUE(foreign.seen().empty());
  // Nor does the system.
  ClientOptions system = OneAttempt();
  system.tls.enabled = true;
  ExpectUnavailable(Call(foreign.address(), system), kNotAccepted);
}

TEST_P(GrpcTlsTest, ACertificateOutOfItsTimeIsRefused) {
  testing::CertificateOptions certificate = ForLoopback();
  certificate.starts = -absl::Hours(2);
  certificate.ends = -absl::Hours(1);
  TlsServer expired(Issue(ca_, certificate));
  ExpectUnavailable(Call(expired.address(), Trusting(ca_)), kNotAccepted);
  certificate.starts = absl::Hours(1);
  certificate.ends = absl::Hours(2);
  TlsServer early(Issue(ca_, certificate));
  ExpectUnavailable(Call(early.address(), Trusting(ca_)), kNotAccepted);
}

TEST_P(GrpcTlsTest, ACertificateForAnotherNameIsRefusedUnlessThatIsExpected) {
  TlsServer server(Issue(ca_, {.dns = {"other.test"}}));
  ClientOptions options = Trusting(ca_);
  const absl::Status status = Call(server.address(), options);
  ExpectUnavailable(status, "the server's certificate is for another name");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Peer name 127.0.0.1 is not in peer certificate"));
  options.tls.server_name = "other.test";
  EXPECT_TRUE(Call(server.address(), options).ok());
  options.tls.server_name = "third.test";
  ExpectUnavailable(Call(server.address(), options),
                    "the server's certificate is for another name");
}

TEST_P(GrpcTlsTest, TlsToAServerWithoutItSaysSo) {
  TlsServer plain;
  ExpectUnavailable(Call(plain.address(), Trusting(ca_)),
                    "what answered does not speak TLS");
}

TEST_P(GrpcTlsTest, NoTlsToAServerWithItAsksForIt) {
  TlsServer server(Issue(ca_, ForLoopback()));
  ExpectUnavailable(Call(server.address(), OneAttempt()),
                    "the server closed the connection at once; does it expect "
                    "TLS, or take no more connections?");
}

TEST_P(GrpcTlsTest, AClientsCertificateReachesTheServer) {
  TlsServer server(Issue(ca_, ForLoopback()), ca_.chain);
  const Identity direct = Issue(ca_, {.common_name = "direct"});
  const Identity between = Issue(MakeIntermediate(ca_, "between"),
                                 {.common_name = "through another"});
  for (const Identity& own : {direct, between}) {
    const absl::Status status = Call(server.address(), Trusting(ca_, own));
    EXPECT_TRUE(status.ok()) << status;
  }
  ASSERT_EQ(server.seen().size(), 2);
  EXPECT_EQ(server.seen()[0].common_name, "direct");
  EXPECT_EQ(server.seen()[1].common_name, "through another");
}

TEST_P(GrpcTlsTest, AServerThatWantsACertificateHangsUp) {
  TlsServer server(Issue(ca_, ForLoopback()), ca_.chain);
  ExpectUnavailable(Call(server.address(), Trusting(ca_)),
                    "the server closed the connection; does it require a "
                    "certificate of the client");
  const Identity foreign = Issue(foreign_ca_, {});
  const Identity expired =
      Issue(ca_, {.starts = -absl::Hours(2), .ends = -absl::Hours(1)});
  for (const Identity& own : {foreign, expired, SelfSigned({})}) {
    ExpectUnavailable(Call(server.address(), Trusting(ca_, own)),
                      "the server closed the connection; does it refuse the "
                      "client's certificate");
  }
  EXPECT_TRUE(server.seen().empty());
}

TEST_P(GrpcTlsTest, NobodyThereIsNoMatterOfTls) {
  std::string address;
  {
    TlsServer gone;
    address = gone.address();
  }
  const absl::Status status = Call(address, Trusting(ca_));
  ExpectUnavailable(status, "failed to connect to all addresses");
}

// What a client offers: TLS 1.3 and 1.2, and nothing before them.
TEST_P(GrpcTlsTest, NothingOlderThanTls12IsOffered) {
  std::string hello;
  {
    OneConnection server([&hello](int fd) {
      // The record's header says how long it is.
      std::string bytes(16384, '\0');
      while (hello.size() < 5 ||
             hello.size() < 5 + static_cast<uint8_t>(hello[3]) * 256 +
                                static_cast<uint8_t>(hello[4])) {
        const ssize_t n = recv(fd, bytes.data(), bytes.size(), 0);
        if (n <= 0) break;
        hello.append(bytes, 0, n);
      }
    });
    ExpectUnavailable(Call(server.address(), Trusting(ca_)),
                      "the server closed the connection; ");
  }
  // The extension supported_versions, and all that it lists.
  EXPECT_THAT(hello, HasSubstr(std::string("\x00\x2b\x00\x05\x04"
                                           "\x03\x04\x03\x03",
                                           9)));
}

TEST_P(GrpcTlsTest, AServerOfOlderVersionsSaysSo) {
  OneConnection server(
      ShakeHands(Issue(ca_, ForLoopback()), [](SSL_CTX& context) {
        // Signatures by SHA-1, as these versions have, are below other levels.
        SSL_CTX_set_security_level(&context, 0);
        EXPECT_EQ(SSL_CTX_set_min_proto_version(&context, TLS1_VERSION), 1);
        EXPECT_EQ(SSL_CTX_set_max_proto_version(&context, TLS1_1_VERSION), 1);
      }));
  ExpectUnavailable(Call(server.address(), Trusting(ca_)),
                    "the server speaks no version of TLS from 1.2 on");
}

TEST_P(GrpcTlsTest, AServerOfSomethingElseOverTlsSaysSo) {
  OneConnection server(ShakeHands(Issue(ca_, ForLoopback()), [](SSL_CTX&) {}));
  ExpectUnavailable(Call(server.address(), Trusting(ca_)),
                    "the server speaks TLS, but not HTTP/2");
}

// With TLS 1.2 a server looks at the client's certificate before the handshake
// is over, and can say what it thinks of it.
TEST_P(GrpcTlsTest, AServerOfTls12TellsThatItWantsAnotherCertificate) {
  const auto demand = [](SSL_CTX& context) {
    EXPECT_EQ(SSL_CTX_set_max_proto_version(&context, TLS1_2_VERSION), 1);
    SSL_CTX_set_verify(
        &context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  };
  const Identity identity = Issue(ca_, ForLoopback());
  for (const Identity& own : {Identity(), SelfSigned({})}) {
    OneConnection server(ShakeHands(identity, demand));
    ExpectUnavailable(Call(server.address(), Trusting(ca_, own)),
                      "the server refused the TLS handshake; does it require a "
                      "certificate of the client, or another one?");
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, GrpcTlsTest, ::testing::Bool(), NameOfTlsWay);

}  // namespace
}  // namespace attnd::client
