// Floods of HTTP/2 against attnd, in clear, by TLS, and by TLS with a
// certificate of the client's. How quick others are served meanwhile is
// tests/bench/security/flood_bench's to say.

#include "tests/integration/floods.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/certificates.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {
namespace {

enum class Way { kClear, kTls, kMutualTls };

class FloodsTest : public ::testing::TestWithParam<Way> {
 protected:
  FloodsTest() {
    WriteIdentity(Issue(authority_, {.dns = {"localhost"}}),
                  folder_.File("server"));
    ReplaceFile(folder_.File("ca.pem"), authority_.chain);
    std::vector<std::string> flags = {"--threads=1", "--memory_limit=128MiB",
                                      "--metrics_port=0"};
    if (GetParam() != Way::kClear) {
      flags.push_back("--tls_cert=" + folder_.File("server.pem"));
      flags.push_back("--tls_key=" + folder_.File("server.key"));
      client_.ca = authority_.chain;
    }
    if (GetParam() == Way::kMutualTls) {
      flags.push_back("--tls_client_ca=" + folder_.File("ca.pem"));
      const Identity own = Issue(authority_, {.common_name = "flooder"});
      client_.certificate = own.chain;
      client_.key = own.key;
    }
    auto process = ServerProcess::Start(ATTND_BINARY, flags);
    EXPECT_TRUE(process.ok()) << process.status();
    if (process.ok()) process_ = *std::move(process);
  }

  const TlsClientOptions* tls() const {
    return GetParam() == Way::kClear ? nullptr : &client_;
  }
  // The numbers of each "... frames=12 bytes=81920" in the log.
  struct Ended {
    int64_t frames = -1;
    int64_t bytes = -1;
  };
  std::vector<Ended> AllEnded() const {
    std::vector<Ended> all;
    for (absl::string_view line : absl::StrSplit(process_->log(), '\n')) {
      if (!absl::StrContains(line, "ended a connection of ")) continue;
      Ended& ended = all.emplace_back();
      for (absl::string_view word : absl::StrSplit(line, ' ')) {
        if (absl::ConsumePrefix(&word, "frames=")) {
          EXPECT_TRUE(absl::SimpleAtoi(word, &ended.frames));
        } else if (absl::ConsumePrefix(&word, "bytes=")) {
          EXPECT_TRUE(absl::SimpleAtoi(word, &ended.bytes));
        }
      }
    }
    return all;
  }

  const Identity authority_ = MakeAuthority("test CA");
  const TempFolder folder_;
  TlsClientOptions client_;
  std::unique_ptr<ServerProcess> process_;
};

TEST_P(FloodsTest, AreEndedBeforeTheirThousandthFrame) {
  ASSERT_NE(process_, nullptr);
  // A peer that is not ended goes on for ever.
  constexpr int64_t kMost = int64_t{256} << 20;
  int64_t ended = 0;
  for (const Flood& flood : AllFloods()) {
    SCOPED_TRACE(flood.name);
    FloodingPeer peer(process_->tcp(), 2, tls());
    if (flood.grpc_may_end) {
      // Before or after the server says so; memory tells in the end.
      peer.Pour(flood, 4 << 20);
      ended = std::ssize(AllEnded());
    } else {
      EXPECT_TRUE(peer.Pour(flood, kMost));
      ++ended;
      ASSERT_TRUE(Eventually([&] { return std::ssize(AllEnded()) >= ended; }))
          << process_->log();
      const Ended how = AllEnded().back();
      EXPECT_GT(how.frames, 0);
      EXPECT_LE(how.frames, 1000);
      EXPECT_LE(how.bytes, 1 << 20);
    }
    EXPECT_EQ(Health(Connect(process_->unix_socket())), "SERVING");
  }
  if (!kSanitized) {
    EXPECT_LT(process_->usage().peak_resident_bytes, (128 + 64) << 20);
  }
}

INSTANTIATE_TEST_SUITE_P(, FloodsTest,
                         ::testing::Values(Way::kClear, Way::kTls,
                                           Way::kMutualTls),
                         [](const auto& info) {
                           return info.param == Way::kClear ? "InClear"
                                  : info.param == Way::kTls ? "ByTls"
                                                            : "ByMutualTls";
                         });

}  // namespace
}  // namespace attnd::testing
