// Clients that are killed in the middle of a request that uses a region: when
// its bytes are back, and whether anything of theirs stays.

#include <signal.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "attnd/device_region.h"
#include "attnd/region.h"
#include "base/clock.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/region/calls.h"
#include "tests/bench/region/section.h"
#include "tests/bench/region/server.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"
#include "tests/hang_limit.h"

namespace attnd::bench {
namespace {

constexpr absl::Duration kBackBar = absl::Milliseconds(100);
constexpr int64_t kGrownMib = 32;
constexpr int kWarmUp = 10;

constexpr char kFree[] = "attnd_region_free_bytes";
constexpr char kRunning[] = "attnd_running_requests";

// Seconds of a processor; a quarter of a second of a GPU, where a request ends
// with the slices that are under way. Few bytes, so that regions are soon
// replaced.
ForwardShape LongShape(bool on_gpu) {
  if (on_gpu) return {client::DType::kBF16, 1 << 23, 1 << 15, 1, 1};
  return {client::DType::kF32, 1 << 16, 1 << 16, 1, 8};
}

struct Victims {
  bool on_device;       // their region is of a GPU's memory
  const char* what;     // they are called
  const char* regions;  // the metric
};

// Lets one begin its request, and kills it once that runs.
absl::Duration KillOne(const RegionBenchOptions& options,
                       const MeasuredServer& server, const Victims& victims) {
  std::vector<std::string> arguments = {
      "--victim", "--server=" + server.target(),
      "--region_socket=" + server.region_socket(),
      absl::StrCat("--gpu=", options.gpu), "--device=" + options.device};
  if (victims.on_device) arguments.push_back("--victim_on_device");
  const PeerProcess victim(arguments);
  server.AwaitMetric(kRunning, 1);
  const absl::Time start = MonotonicNow();
  kill(victim.pid(), SIGKILL);
  server.AwaitMetric(victims.regions, 0);
  return MonotonicNow() - start;
}

void KillAll(const RegionBenchOptions& options, const MeasuredServer& server,
             const Victims& victims, Table& table) {
  const double free = server.Metric(kFree);
  testing::Usage before;
  std::vector<double> ms;
  for (int i = -kWarmUp; i < options.kills; ++i) {
    // A region that is given back is replaced at leisure.
    server.AwaitMetric(kFree, free);
    if (i == 0) {
      server.AwaitMetric(kRunning, 0);
      before = server.usage();
    }
    const absl::Duration back = KillOne(options, server, victims);
    if (i >= 0) ms.push_back(absl::ToDoubleMilliseconds(back));
  }
  server.AwaitMetric(kFree, free);
  server.AwaitMetric(kRunning, 0);
  // The connection of the last look at the metrics may go a moment later.
  testing::Eventually(
      [&] { return server.usage().descriptors <= before.descriptors; });
  const testing::Usage after = server.usage();
  const std::string of = absl::StrCat(victims.what, ": ");
  table.Shows(of + "rounds", double(ms.size()));
  table.Shows(of + "region back, p50", Median(ms), "ms");
  table.AtMost(of + "region back, the slowest",
               absl::Milliseconds(Quantile(ms, 1)), kBackBar);
  table.AtMost(of + "descriptors more than before",
               after.descriptors - before.descriptors, 0);
  table.AtMost(of + "threads more than before", after.threads - before.threads,
               0);
  table.AtMost(of + "memory more than before",
               double(after.resident_bytes - before.resident_bytes) / (1 << 20),
               kGrownMib, "MiB");
}

}  // namespace

void BeKilled(const std::string& server, const std::string& region_socket,
              bool on_device, int gpu) {
  const ForwardShape shape = LongShape(gpu >= 0);
  const std::unique_ptr<client::Client> client = NewClient(server);
  const auto region = Get(
      on_device ? client::AllocateDeviceRegion(region_socket,
                                               shape.region_bytes(), gpu)
                : client::Region::Lease(region_socket, shape.region_bytes()));
  client->AddRegion(region);
  const client::ForwardCall call = on_device
                                       ? PlaceForward(*region, shape)
                                       : PlaceRandomForward(*region, shape);
  client->ForwardAsync(call, {}, [](absl::StatusOr<client::Report> report) {
    // It should have been killed before.
    std::fprintf(stderr, "victim: %s\n", report.status().ToString().c_str());
  });
  ServeUntilParentIsDone(1);
}

void Killed(const RegionBenchOptions& options, Table& table) {
  // A region has whole huge pages.
  constexpr int64_t kHugePage = 2 << 20;
  const int64_t bytes = LongShape(options.on_gpu()).region_bytes();
  const int64_t mib = (bytes + kHugePage - 1) / kHugePage * 2;
  const MeasuredServer server(
      options, {absl::StrCat("--region_slab=", mib, "MiB"),
                absl::StrCat("--region_memory=", 2 * mib, "MiB")});
  KillAll(options, server, {false, "host memory", "attnd_region_leases"},
          table);
  if (options.on_gpu()) {
    KillAll(options, server, {true, "GPU memory", "attnd_region_imports"},
            table);
  }
  // The server lives.
  const std::unique_ptr<client::Client> client = NewClient(server.target());
  table.Holds("the server serves", "yes", client->CheckHealth("", {}).ok());
}

}  // namespace attnd::bench
