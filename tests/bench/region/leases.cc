// How soon a client has a region, and what others notice while regions that
// were given back are replaced.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnd/region.h"
#include "base/clock.h"
#include "tests/bench/clock.h"
#include "tests/bench/region/calls.h"
#include "tests/bench/region/section.h"
#include "tests/bench/region/server.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr absl::Duration kLeaseBar = absl::Milliseconds(1);
constexpr double kOthersBar = 1.2;

constexpr int kLeases = 300, kLeasesBesideGpu = 60;
constexpr int kTurns = 10, kCalls = 2000;

constexpr char kFree[] = "attnd_region_free_bytes";
constexpr char kReplaced[] = "attnd_region_slabs_replaced_total";
constexpr char kPinned[] = "attnd_region_pinned_pieces_total";

using Region = std::shared_ptr<client::Region>;

// All that there are, from the smallest on, with what each took in seconds.
std::vector<Region> LeaseAll(const MeasuredServer& server,
                             std::vector<double>& seconds) {
  std::vector<Region> leased;
  for (;;) {
    absl::StatusOr<Region> region;
    const double took = Time(
        [&] { region = client::Region::Lease(server.region_socket(), 1); });
    if (absl::IsResourceExhausted(region.status())) return leased;
    leased.push_back(Get(std::move(region)));
    seconds.push_back(took);
  }
}

void TimeLeases(const MeasuredServer& server, size_t leases, Table& table) {
  const double free = server.Metric(kFree);
  std::vector<double> seconds;
  double pinned = 0;
  while (seconds.size() < leases) {
    server.AwaitMetric(kFree, free);
    // Nothing is being replaced now: whatever is pinned, a lease has pinned.
    const double before = server.Metric(kPinned);
    const std::vector<Region> leased = LeaseAll(server, seconds);
    pinned += server.Metric(kPinned) - before;
  }
  server.AwaitMetric(kFree, free);
  table.AtMost("a lease, p50", absl::Seconds(Median(seconds)), kLeaseBar);
  table.AtMost("a lease, p99", absl::Seconds(Quantile(seconds, 0.99)),
               kLeaseBar);
  table.AtMost("pieces pinned while all were leased", pinned, 0);
}

// Leases regions and gives them back for as long as it lives, so that there is
// always one that is being replaced.
class Turnover {
 public:
  explicit Turnover(const MeasuredServer& server)
      : thread_([this, socket = server.region_socket()] {
          while (!ends_) {
            const auto region = client::Region::Lease(socket, 1);
            // None is left: as soon as there is one again.
            if (!region.ok()) absl::SleepFor(absl::Milliseconds(5));
          }
        }) {}
  ~Turnover() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

// Of small requests that have nothing to do with regions.
class SmallCaller {
 public:
  explicit SmallCaller(const MeasuredServer& server)
      : client_(NewClient(server.target())),
        values_(kLen * kDim, 0.5f),
        o_(kLen * kDim) {
    const std::vector<int64_t> shape = {1, kLen, 1, kDim};
    call_.q = call_.k = call_.v = {client::DType::kF32, shape, values_.data()};
    call_.o = {client::DType::kF32, shape, o_.data()};
  }
  void Calls(int calls, std::vector<double>& us) {
    for (int i = 0; i < calls; ++i) {
      us.push_back(1e6 * Time([&] { Get(client_->Forward(call_, {})); }));
    }
  }

 private:
  static constexpr int64_t kLen = 16, kDim = 64;
  const std::unique_ptr<client::Client> client_;
  std::vector<float> values_, o_;
  client::ForwardCall call_;
};

void TimeOthers(const MeasuredServer& server, Table& table) {
  const double free = server.Metric(kFree);
  const double replaced = server.Metric(kReplaced);
  SmallCaller caller(server);
  std::vector<double> warm_up, alone, beside;
  caller.Calls(kCalls, warm_up);
  for (int turn = 0; turn < kTurns; ++turn) {
    server.AwaitMetric(kFree, free);
    caller.Calls(kCalls, alone);
    const Turnover turnover(server);
    caller.Calls(kCalls, beside);
  }
  server.AwaitMetric(kFree, free);
  table.Shows("regions replaced meanwhile",
              server.Metric(kReplaced) - replaced);
  table.Shows("a small request alone, p50", Median(alone), "us");
  table.Shows("the same while regions are replaced, p50", Median(beside), "us");
  table.Shows("a small request alone, p99", Quantile(alone, 0.99), "us");
  table.AtMost("p99 while regions are replaced over that alone",
               Quantile(beside, 0.99) / Quantile(alone, 0.99), kOthersBar, "x");
}

}  // namespace

void Leases(const RegionBenchOptions& options, Table& table) {
  // Regions of different sizes: 2 to 32 MiB on a processor, 16 and 64 beside a
  // GPU, where pinning them is what others might notice, and takes its time.
  const std::vector<std::string> flags =
      options.on_gpu() ? std::vector<std::string>{"--region_memory=128MiB",
                                                  "--region_slab=16MiB"}
                       : std::vector<std::string>{"--region_memory=128MiB",
                                                  "--region_slab=2MiB"};
  const MeasuredServer server(options, flags);
  TimeLeases(server, options.on_gpu() ? kLeasesBesideGpu : kLeases, table);
  TimeOthers(server, table);
}

}  // namespace attnd::bench
