// What 20,000 mixed requests leave behind.

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/integration/http_get.h"
#include "tests/integration/mixed_load.h"
#include "tests/integration/process.h"

#if defined(__SANITIZE_ADDRESS__)
// gRPC (1.51) leaks requests that are refused half sent: here in the client,
// while the server is a process of its own.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libgrpc.so\nleak:libgpr.so\n";
}
#endif

namespace attnd::testing {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMemoryLimit = 256 * kMiB;
constexpr int64_t kSlack = 64 * kMiB;
constexpr int64_t kGrowth = 32 * kMiB;
constexpr int kWarmUp = 5000;
constexpr int kCalls = kSanitized ? 10000 : 20000;

std::string Text(const Usage& usage) {
  return absl::StrFormat("%.1f MiB resident, peak %.1f, %d threads, %d fds",
                         1.0 * usage.resident_bytes / kMiB,
                         1.0 * usage.peak_resident_bytes / kMiB, usage.threads,
                         usage.descriptors);
}

class Soak {
 public:
  explicit Soak(const std::string& binary) {
    auto process = ServerProcess::Start(
        binary, {"--memory_limit=256MiB", "--metrics_port=0"});
    EXPECT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
  }

  // Idle, after every part has been used once.
  void WarmUp() {
    Load(200);
    idle_ = Rest();
    Show("idle", idle_);
  }
  void Run() {
    MixedLoad load(Targets());
    load.Run(kWarmUp);
    early_ = process_->usage();
    Show("after 5,000", early_);
    for (int calls = kWarmUp; calls < kCalls; calls += 5000) {
      load.Run(5000);
      late_ = process_->usage();
      Show(absl::StrCat("after ", calls + 5000), late_);
    }
    ShowCodes(load);
  }
  // Far more than fits at once.
  void RunLarge() {
    std::vector<std::string> targets;
    for (int i = 0; i < 4; ++i) {
      targets.push_back(process_->tcp());
      targets.push_back(process_->unix_socket());
    }
    MixedLoad load(targets, MixedLoad::Mix::kLarge);
    load.Run(400);
    late_ = process_->usage();
    Show("after 400 large", late_);
    ShowCodes(load);
  }
  // Polled until nothing moves, or 30 s.
  Usage Rest() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    Usage usage = process_->usage();
    while (absl::Now() < deadline &&
           (AccountBytes() != 0 || usage.threads > idle_.threads ||
            usage.descriptors > idle_.descriptors)) {
      absl::SleepFor(absl::Milliseconds(50));
      usage = process_->usage();
      if (idle_.threads == 0 && AccountBytes() == 0) break;
    }
    return usage;
  }
  double AccountBytes() {
    return MetricValue(process_->Metrics(), "attnd_account_bytes").value_or(-1);
  }
  int64_t growth() const {
    return late_.resident_bytes - early_.resident_bytes;
  }
  const Usage& idle() const { return idle_; }
  const Usage& late() const { return late_; }

 private:
  std::vector<std::string> Targets() const {
    return {process_->tcp(), process_->unix_socket(), process_->tcp()};
  }
  void Load(int calls) { MixedLoad(Targets()).Run(calls); }
  void ShowCodes(const MixedLoad& load) {
    for (int code = 0; code < 17; ++code) {
      if (load.codes()[code] == 0) continue;
      std::cout << load.codes()[code] << " calls ended with code " << code
                << "\n";
    }
  }
  void Show(const std::string& when, const Usage& usage) {
    std::cout << when << ": " << Text(usage) << "\n";
  }

  std::unique_ptr<ServerProcess> process_;
  Usage idle_, early_, late_;
};

TEST(Soak, MixedRequestsLeaveNothingBehind) {
  Soak soak(ATTND_BINARY);
  soak.WarmUp();
  soak.Run();
  if (!kSanitized) {
    EXPECT_LE(soak.growth(), kGrowth);
    EXPECT_LE(soak.late().peak_resident_bytes, kMemoryLimit + kSlack);
  }
  const Usage rest = soak.Rest();
  std::cout << "at rest: " << Text(rest) << "\n";
  EXPECT_EQ(soak.AccountBytes(), 0);
  EXPECT_LE(rest.threads, soak.idle().threads);
  EXPECT_LE(rest.descriptors, soak.idle().descriptors);
}

TEST(Soak, LargeRequestsStayWithinTheMemoryLimit) {
  Soak soak(ATTND_BINARY);
  soak.RunLarge();
  if (!kSanitized) {
    EXPECT_LE(soak.late().peak_resident_bytes, kMemoryLimit + kSlack);
  }
  const Usage rest = soak.Rest();
  std::cout << "at rest: " << Text(rest) << "\n";
  EXPECT_EQ(soak.AccountBytes(), 0);
}

TEST(Soak, NoticesALeakOf8KiBARequest) {
  if (kSanitized) GTEST_SKIP() << "SKIPPED: a sanitizer's memory hides it";
  Soak soak(ATTND_LEAKY_BINARY);
  soak.WarmUp();
  soak.Run();
  EXPECT_GT(soak.growth(), kGrowth);
}

}  // namespace
}  // namespace attnd::testing
