// Callers with a region each that keep a GPU's lanes, and both directions of
// its bus, busy: 48 MiB in and 16 out a call.

#include <malloc.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "attnd/region.h"
#include "tests/bench/clock.h"
#include "tests/bench/region/calls.h"
#include "tests/bench/region/section.h"
#include "tests/bench/region/server.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kCopiesBar = 0.9, kCausalBar = 0.85, kCpuBar = 0.02;
constexpr double kWarmUpSeconds = 1;
constexpr int kTurns = 3;
// 16 MiB each.
constexpr ForwardShape kShape = {client::DType::kBF16, 4096, 4096, 16, 128};

struct Caller {
  std::unique_ptr<client::Client> client;
  std::shared_ptr<client::Region> region;
  client::ForwardCall call;
  std::thread thread;
};

struct Rates {
  std::vector<double> gigabytes, tflops, cpu_per_gb;  // a value a turn
};

std::vector<Caller> NewCallers(int callers, const MeasuredServer& server) {
  std::vector<Caller> all(callers);
  for (Caller& of : all) {
    of.client = NewClient(server.target());
    of.region = Get(
        client::Region::Lease(server.region_socket(), kShape.region_bytes()));
    of.client->AddRegion(of.region);
    of.call = PlaceRandomForward(*of.region, kShape);
  }
  return all;
}

// All call in closed loops, with this mask.
void Run(const client::Mask& mask, double seconds, const MeasuredServer& server,
         std::vector<Caller>& callers, Rates& rates) {
  std::atomic<bool> counts = false, ends = false;
  std::atomic<int64_t> calls = 0;
  std::atomic<double> flops = 0;
  for (Caller& of : callers) {
    of.call.attention.mask = mask;
    std::memset(of.call.o.data, 0xee, kShape.q_bytes());
    of.thread = std::thread([&] {
      while (!ends) {
        const client::Report report = CallByRegion(*of.client, of.call);
        if (!counts || ends) continue;
        ++calls;
        flops += report.flops;
      }
    });
  }
  absl::SleepFor(absl::Seconds(kWarmUpSeconds));
  counts = true;
  const double start = Seconds(), cpu = server.CpuSeconds();
  absl::SleepFor(absl::Seconds(seconds));
  ends = true;
  const double took = Seconds() - start;
  const double cpu_took = server.CpuSeconds() - cpu;
  for (Caller& of : callers) of.thread.join();
  const double gigabytes = 4e-9 * double(calls) * double(kShape.q_bytes());
  rates.gigabytes.push_back(gigabytes / took);
  rates.tflops.push_back(flops / took / 1e12);
  rates.cpu_per_gb.push_back(cpu_took / gigabytes);
  // The first row sees the first column alone, whatever the mask.
  for (const Caller& of : callers) {
    if (std::memcmp(of.call.o.data, of.call.v.data, kShape.dim * 2) != 0) {
      Require(absl::InternalError("an answer's first row is not V's"));
    }
  }
}

void Print(absl::string_view what, const Rates& rates, double bar,
           const RegionBenchOptions& options, Table& table) {
  table.Shows(absl::StrCat(what, ", in and out"), Median(rates.gigabytes),
              "GB/s");
  table.Shows(absl::StrCat(what, ", computed"), Median(rates.tflops),
              "TFLOP/s");
  if (options.pcie_gbs > 0) {
    table.AtLeast(absl::StrCat(what, ", GB/s over what PCIe allows"),
                  Median(rates.gigabytes) / options.pcie_gbs, bar, "x");
  }
  table.AtMost(absl::StrCat(what, ", server's processors for a gigabyte"),
               Median(rates.cpu_per_gb), kCpuBar, "s");
}

}  // namespace

void Load(const RegionBenchOptions& options, Table& table) {
  const int64_t mib = kShape.region_bytes() >> 20;
  const MeasuredServer server(
      options,
      {"--lanes=4", absl::StrCat("--region_slab=", mib, "MiB"),
       absl::StrCat("--region_memory=", 4 * options.callers * mib, "MiB")});
  std::vector<Caller> callers = NewCallers(options.callers, server);
  // Each query sees its own key: hardly a kernel, and O is V.
  client::Mask own;
  own.window_left = own.window_right = 0;
  client::Mask causal;
  causal.causal = true;
  Rates copies, forwards;
  for (int turn = 0; turn < kTurns; ++turn) {
    Run(own, options.seconds / kTurns, server, callers, copies);
    Run(causal, options.seconds / kTurns, server, callers, forwards);
  }
  Print("hardly a kernel", copies, kCopiesBar, options, table);
  Print("causal", forwards, kCausalBar, options, table);
}

}  // namespace attnd::bench
