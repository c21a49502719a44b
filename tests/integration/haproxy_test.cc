// deploy/haproxy.cfg: HAProxy takes it, and calls pass while floods do not.

#include "tests/integration/haproxy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "tests/certificates.h"
#include "tests/integration/floods.h"
#include "tests/integration/process.h"

namespace attnd::testing {
namespace {

// A forward of `rows` queries and one key.
absl::Status Call(client::Client& client, int64_t rows) {
  constexpr int64_t kDim = 64;
  const std::vector<float> q(static_cast<size_t>(rows * kDim), 1.0f);
  const std::vector<float> k(kDim, 1.0f), v(kDim, 2.0f);
  std::vector<float> o(q.size());
  client::ForwardCall call;
  call.q = {client::DType::kF32, {1, rows, 1, kDim}, q.data()};
  call.k = {client::DType::kF32, {1, 1, 1, kDim}, k.data()};
  call.v = {client::DType::kF32, {1, 1, 1, kDim}, v.data()};
  call.o = {client::DType::kF32, {1, rows, 1, kDim}, o.data()};
  if (const auto report = client.Forward(call, {}); !report.ok()) {
    return report.status();
  }
  return o == std::vector<float>(o.size(), 2.0f)
             ? absl::OkStatus()
             : absl::InternalError("O is not V");
}

class HaproxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Haproxy::Find().empty()) {
      // tests/run.sh has installed it.
      ASSERT_EQ(std::getenv("ATTND_REQUIRE_TOOLS"), nullptr);
      GTEST_SKIP() << "SKIPPED: HAProxy is not installed";
    }
    const Identity front =
        Issue(authority_, {.dns = {"localhost"}, .ips = {"127.0.0.1"}});
    ReplaceFile(bundle_, front.chain + front.key);
    auto process =
        ServerProcess::Start(ATTND_BINARY, {"--threads=1", "--port=-1"});
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
  }

  std::unique_ptr<Haproxy> StartFront(const std::string& bundle) {
    const std::string socket =
        process_->unix_socket().substr(std::string("unix:").size());
    auto front = Haproxy::Start(socket, bundle);
    EXPECT_TRUE(front.ok()) << front.status();
    return front.ok() ? *std::move(front) : nullptr;
  }

  // A client that tries nothing again.
  std::unique_ptr<client::Client> Connect(const Haproxy& front, bool by_tls) {
    client::ClientOptions options;
    options.max_attempts = 1;
    options.tls.enabled = by_tls;
    if (by_tls) options.tls.ca_pem = authority_.chain;
    auto client = client::Client::Create(front.target(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  const Identity authority_ = MakeAuthority("test CA");
  const TempFolder folder_;
  const std::string bundle_ = folder_.File("front.pem");
  std::unique_ptr<ServerProcess> process_;
};

TEST_F(HaproxyTest, TakesTheConfigurationWithoutAWarning) {
  const Ran ran = RunProgram(
      {"/usr/bin/env", absl::StrCat("ATTND_FRONT_CERTIFICATE=", bundle_),
       Haproxy::Find(), "-c", "-dW", "-f", ATTND_HAPROXY_CFG});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
}

TEST_F(HaproxyTest, PassesCallsOfAnySize) {
  for (const bool by_tls : {false, true}) {
    SCOPED_TRACE(by_tls);
    const auto front = StartFront(by_tls ? bundle_ : "");
    ASSERT_NE(front, nullptr);
    const auto client = Connect(*front, by_tls);
    ASSERT_NE(client, nullptr);
    EXPECT_TRUE(client->GetServerInfo({}).ok());
    // 256 bytes, and 16 MiB, which go in chunks.
    for (const int64_t rows : {int64_t{1}, int64_t{1} << 16}) {
      const absl::Status called = Call(*client, rows);
      EXPECT_TRUE(called.ok()) << called;
    }
  }
}

// What HAProxy lets through of a flood attnd ends with the connection by which
// it came: that must be nobody else's.
TEST_F(HaproxyTest, AFloodEndsNoCallOfOthers) {
  const auto front = StartFront(bundle_);
  ASSERT_NE(front, nullptr);
  const auto client = Connect(*front, /*by_tls=*/true);
  ASSERT_NE(client, nullptr);
  TlsClientOptions tls;
  tls.ca = authority_.chain;
  for (const Flood& flood : AllFloods()) {
    SCOPED_TRACE(flood.name);
    std::atomic<bool> is_over = false;
    std::thread flooder([&] {
      for (int i = 0; i < 5; ++i) {
        FloodingPeer(front->target(), 2, &tls).Pour(flood, 1 << 20);
      }
      is_over = true;
    });
    absl::Status called;
    do {
      called = Call(*client, 1);
    } while (called.ok() && !is_over);
    flooder.join();
    EXPECT_TRUE(called.ok()) << called;
  }
}

}  // namespace
}  // namespace attnd::testing
