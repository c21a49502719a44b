// attnd's TLS as its peers see it: who is let in, who is not, and what those
// are told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attnd/region.h"
#include "tests/hang_limit.h"
#include "tests/integration/rpc.h"
#include "tests/integration/tls_serving.h"

namespace attnd::testing {
namespace {

using client::TransportKind;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kNotAccepted[] =
    "the server's certificate was not accepted: either no authority (CA) that "
    "the client trusts has signed it, or it is not valid at this time";

using TlsTest = TlsServingTest;

void ExpectUnavailable(const absl::Status& status, const std::string& lead) {
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith(lead));
}

TEST_F(TlsTest, GoodCertificatesOfEitherKindAreServed) {
  for (const KeyKind kind : {KeyKind::kEcP256, KeyKind::kRsa2048}) {
    const CertificateOptions own = {
        .dns = {"localhost"}, .ips = {"127.0.0.1"}, .key = kind};
    WriteIdentity(Issue(MakeIntermediate(authority_, "between"), own),
                  folder_.File("server"));
    StartMutual();
    const Identity direct = Issue(client_authority_, {.key = kind});
    const Identity behind =
        Issue(MakeIntermediate(client_authority_, "between"), {.key = kind});
    for (const Identity& client : {direct, behind}) {
      EXPECT_EQ(Call(Trusting(client)), absl::OkStatus());
    }
  }
}

TEST_F(TlsTest, AClientDoesNotTakeAServerThatIsNotItsOwn) {
  const Identity expired = Issue(
      authority_,
      {.starts = -absl::Hours(2), .ends = -absl::Hours(1), .authority = true});
  const CertificateOptions here = {.ips = {"127.0.0.1"}};
  struct Case {
    const char* what;
    Identity server;
    std::string lead;
  };
  for (const Case& wrong :
       {Case{"foreign", Issue(foreign_authority_, here), kNotAccepted},
        Case{"self-signed", SelfSigned(here), kNotAccepted},
        Case{"expired on the way", Issue(expired, here), kNotAccepted},
        Case{"of another host", Issue(authority_, {.dns = {"other.test"}}),
             "the server's certificate is for another name"}}) {
    SCOPED_TRACE(wrong.what);
    WriteIdentity(wrong.server, folder_.File("server"));
    Start();
    ExpectUnavailable(Call(Trusting()), wrong.lead);
  }
}

TEST_F(TlsTest, WhoShowsNoGoodCertificateIsServedNothing) {
  StartMutual();
  const CertificateOptions mallory = {.common_name = "mallory"};
  CertificateOptions old = mallory, early = mallory;
  old.starts = -absl::Hours(2);
  old.ends = -absl::Hours(1);
  early.starts = absl::Hours(1);
  early.ends = absl::Hours(2);
  int refused = 0;
  for (const Identity& own :
       {Identity(), Issue(foreign_authority_, mallory), SelfSigned(mallory),
        // By whom the server is known, and clients are not.
        Issue(authority_, mallory), Issue(client_authority_, old),
        Issue(client_authority_, early),
        // An authority's only by its name.
        Issue(MakeAuthority("client CA"), mallory)}) {
    for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
      TlsClientOptions options = RawTrusting(own);
      options.max_version = version;
      TlsPeer peer(process_->tcp(), options);
      EXPECT_FALSE(peer.Handshake() && peer.IsServed());
      // An alert of TLS's own, or a connection that has ended; no text.
      EXPECT_THAT(peer.tls().error(),
                  AnyOf(HasSubstr("alert"), HasSubstr("ended")));
      ++refused;
    }
    ExpectUnavailable(Call(Trusting(own)), "the server closed the connection");
    ++refused;
  }
  EXPECT_TRUE(Eventually(
      [&] { return Metric("attnd_tls_handshakes_failed_total") == refused; }));
  EXPECT_EQ(Metric("attnd_tls_handshakes_total"), 0);
  EXPECT_TRUE(process_->AwaitLog("no TLS with 127.0.0.1: "));
  EXPECT_THAT(process_->log(), Not(HasSubstr("mallory")));
  EXPECT_EQ(Call(Trusting(ForClient("alice"))), absl::OkStatus());
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  struct Case {
    std::string flag;
    int version;
    bool is_served;
  };
  for (const Case& c :
       {Case{"", TLS1_1_VERSION, false}, Case{"", TLS1_2_VERSION, true},
        Case{"", TLS1_3_VERSION, true},
        Case{"--tls_min_version=1.3", TLS1_2_VERSION, false},
        Case{"--tls_min_version=1.3", TLS1_3_VERSION, true}}) {
    SCOPED_TRACE(absl::StrCat(c.flag, " ", c.version));
    Start(c.flag.empty() ? std::vector<std::string>()
                         : std::vector<std::string>{c.flag});
    TlsClientOptions options = RawTrusting();
    options.max_version = c.version;
    TlsPeer peer(process_->tcp(), options);
    EXPECT_EQ(peer.Handshake() && peer.IsServed(), c.is_served);
    if (c.is_served) {
      EXPECT_EQ(peer.tls().version(), c.version);
    } else {
      EXPECT_THAT(peer.tls().error(), HasSubstr("alert protocol version"));
    }
  }
}

TEST_F(TlsTest, WhoDoesNotAskForHttp2IsRefused) {
  Start();
  for (const char* protocol : {"", "http/1.1", "h3", "h2c"}) {
    TlsClientOptions options = RawTrusting();
    options.alpn = protocol;
    TlsPeer peer(process_->tcp(), options);
    EXPECT_FALSE(peer.Handshake() && peer.IsServed()) << protocol;
    EXPECT_THAT(peer.tls().error(), HasSubstr("no application protocol"));
  }
  EXPECT_EQ(Call(Trusting()), absl::OkStatus());
}

TEST_F(TlsTest, ClientsWithoutItAreToldToAskForIt) {
  Start();
  client::ClientOptions plain;
  plain.max_attempts = 1;
  ExpectUnavailable(Call(plain),
                    "the server closed the connection at once; does it expect "
                    "TLS, or take no more connections?");
  EXPECT_EQ(Call(Trusting()), absl::OkStatus());
}

TEST_F(TlsTest, ServersWithoutItAreToldFromThoseThatHaveIt) {
  auto process = ServerProcess::Start(ATTND_BINARY, {"--memory_limit=128MiB"});
  ASSERT_TRUE(process.ok()) << process.status();
  process_ = *std::move(process);
  ExpectUnavailable(Call(Trusting()), "what answered does not speak TLS");
  EXPECT_TRUE(process_->AwaitLog("it does not speak HTTP/2"));
  EXPECT_EQ(Health(Connect(process_->tcp())), "SERVING");
}

TEST_F(TlsTest, ACertificateIsAnIdentity) {
  StartMutual({"--require_identity", "--max_client_rate=0.0001"});
  const client::ClientOptions alice = Trusting(ForClient("alice"));
  const client::ClientOptions bob = Trusting(ForClient("bob"));
  EXPECT_EQ(Call(alice), absl::OkStatus());
  // Over whichever connection, and by a renewed certificate as well.
  for (const auto& again : {alice, Trusting(ForClient("alice"))}) {
    const absl::Status refused = Call(again);
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--max_client_rate"));
  }
  EXPECT_EQ(Call(bob), absl::OkStatus());
  // By the unix socket nobody shows one.
  const absl::Status unknown =
      RawCall(Connect(process_->unix_socket()), Op::kForward, std::string());
  EXPECT_EQ(unknown,
            absl::UnauthenticatedError("the call is not authenticated"));
}

// Tensors of 1 and 4 MiB, in memory that the caller has.
struct Attention {
  static constexpr int64_t kHeads = 8, kDim = 64, kQLen = 2048, kKvLen = 512;
  static constexpr int64_t kQ = kQLen * kHeads * kDim;
  static constexpr int64_t kKv = kKvLen * kHeads * kDim;

  client::ForwardCall CallAt(float* q, float* k, float* v, float* o) const {
    client::ForwardCall call;
    call.q = {client::DType::kF32, {1, kQLen, kHeads, kDim}, q};
    call.k = {client::DType::kF32, {1, kKvLen, kHeads, kDim}, k};
    call.v = {client::DType::kF32, {1, kKvLen, kHeads, kDim}, v};
    call.attention.mask.causal = true;
    call.o = {client::DType::kF32, {1, kQLen, kHeads, kDim}, o};
    return call;
  }
  Attention() : inputs(kQ + 2 * kKv) {
    std::minstd_rand random(7);
    std::uniform_real_distribution<float> values(-1, 1);
    for (float& value : inputs) value = values(random);
  }

  std::vector<float> inputs;  // Q, K and V
};

TEST_F(TlsTest, LargeTensorsAreTheSameHoweverTheyTravel) {
  const std::string socket = folder_.File("region");
  StartMutual({"--region_socket=" + socket, "--region_memory=64MiB",
               "--region_slab=2MiB"});
  const auto secret = MakeClient(Trusting(ForClient("alice")));
  auto plain = client::Client::Create(process_->unix_socket());
  ASSERT_TRUE(plain.ok()) << plain.status();
  Attention at;
  float* const q = at.inputs.data();
  const auto run = [&](client::Client& client, TransportKind how, float* in,
                       float* o) {
    client::CallOptions options;
    options.timeout = kHangLimit;
    options.transport = how;
    const auto report = client.Forward(
        at.CallAt(in, in + at.kQ, in + at.kQ + at.kKv, o), options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->transport, how);
  };
  std::vector<float> expected(at.kQ, -1), o(at.kQ, -2);
  run(**plain, TransportKind::kUnary, q, expected.data());
  for (const TransportKind how :
       {TransportKind::kUnary, TransportKind::kStream}) {
    o.assign(at.kQ, -2);
    run(*secret, how, q, o.data());
    EXPECT_TRUE(o == expected);
  }
  auto region = client::Region::Lease(socket, 16 << 20);
  ASSERT_TRUE(region.ok()) << region.status();
  secret->AddRegion(*region);
  auto* const shared = static_cast<float*>((*region)->data());
  std::memcpy(shared, q, at.inputs.size() * sizeof(float));
  float* const result = shared + at.inputs.size();
  run(*secret, TransportKind::kRegion, shared, result);
  EXPECT_EQ(std::memcmp(result, expected.data(), at.kQ * sizeof(float)), 0);
}

}  // namespace
}  // namespace attnd::testing
