// Memory and counters of a server that runs everything at once.

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/status.h"
#include "tests/bench/service/section.h"
#include "tests/integration/soak.h"

namespace attnd::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kPeakMiB = 256 + 64;
constexpr double kGrowthMiB = 32;
constexpr int kCalls = 20'000;
constexpr int kWarmUp = 5'000;

// MiB by which its memory grows between `kWarmUp` and `kCalls` calls.
double Growth(testing::Soak& soak) {
  soak.WarmUp();
  soak.Run(kWarmUp);
  const testing::Usage early = soak.usage();
  for (int calls = kWarmUp; calls < kCalls; calls += kWarmUp) {
    soak.Run(kWarmUp);
  }
  return (soak.usage().resident_bytes - early.resident_bytes) / kMiB;
}

// The most by which a count of the server's and the clients' differs.
int WorstDifference(const testing::Soak& soak, bool given_up) {
  const testing::Soak::Counts server = soak.ServerCounts();
  int worst = 0;
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (int code = 0; code < 17; ++code) {
      if (testing::Soak::GivenUp(code) != given_up) continue;
      worst = std::max(worst, std::abs(soak.Seen(op, code) -
                                       server[static_cast<int>(op)][code]));
    }
  }
  return worst;
}

}  // namespace

void Soak(Table& table) {
  const auto soak = Get(testing::Soak::Start(ATTND_BINARY));
  table.AtMost("memory's growth after request 5,000", Growth(*soak), kGrowthMiB,
               "MiB");
  table.AtMost("peak of memory", soak->usage().peak_resident_bytes / kMiB,
               kPeakMiB, "MiB");
  // Of 100 calls 8 are to be cancelled, if the machine is quick enough, and 5
  // have a deadline that they cannot meet.
  table.AtLeast("calls cancelled while they ran",
                soak->Seen(grpc::StatusCode::CANCELLED), kCalls / 200);
  table.AtLeast("calls past their deadline",
                soak->Seen(grpc::StatusCode::DEADLINE_EXCEEDED), kCalls / 200);
  const std::string contradiction = soak->Contradiction();
  table.Holds("server's counts can be the clients'",
              contradiction.empty() ? "yes" : contradiction,
              contradiction.empty());
  table.AtMost("differ most: what the server decided",
               WorstDifference(*soak, /*given_up=*/false), 0);
  // The server never sees some of these, and takes some for others.
  table.AtMost("differ most: what clients gave up",
               WorstDifference(*soak, /*given_up=*/true), kCalls / 500);
  const testing::Usage rest = soak->Rest();
  table.AtMost("memory of requests at rest", soak->AccountBytes(), 0, "bytes");
  table.AtMost("threads at rest, but gRPC's", rest.threads,
               soak->idle().threads);
  table.AtMost("descriptors at rest", rest.descriptors,
               soak->idle().descriptors);
}

void Large(Table& table) {
  const auto soak = Get(testing::Soak::Start(ATTND_BINARY));
  soak->RunLarge(400);
  table.AtMost("peak of memory", soak->usage().peak_resident_bytes / kMiB,
               kPeakMiB, "MiB");
}

void Leak(Table& table) {
  const auto soak = Get(testing::Soak::Start(ATTND_LEAKY_BINARY));
  table.AtLeast("memory's growth after request 5,000", Growth(*soak),
                kGrowthMiB, "MiB");
}

}  // namespace attnd::bench
