// What a server's threads take of processors for a gigabyte that is handed over
// in a region. Of a server that only copies, or of one with GPUs: kernels of a
// processor would be most of it.

#include <memory>
#include <string>

#include "attnd/client.h"
#include "attnd/region.h"
#include "tests/bench/region/calls.h"
#include "tests/bench/region/section.h"
#include "tests/bench/region/server.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

constexpr double kBar = 0.02;
constexpr int kCalls = 300, kWarmUp = 20;
// 2 x 32 MiB in: what the device that only copies copies itself is 4 KiB.
constexpr ForwardShape kShape = {client::DType::kF32, 1, 8192, 8, 128};

template <typename Server>
double CpuSecondsPerGigabyte(const Server& server) {
  const std::unique_ptr<client::Client> client = NewClient(server.target());
  const auto region =
      Get(client::Region::Lease(server.region_socket(), kShape.region_bytes()));
  client->AddRegion(region);
  const client::ForwardCall call = PlaceRandomForward(*region, kShape);
  double before = 0;
  for (int i = -kWarmUp; i < kCalls; ++i) {
    if (i == 0) before = server.CpuSeconds();
    CallByRegion(*client, call);
  }
  const double gigabytes =
      2e-9 * kCalls * double(kShape.q_bytes() + kShape.kv_bytes());
  return (server.CpuSeconds() - before) / gigabytes;
}

}  // namespace

void ServerCpu(const RegionBenchOptions& options, Table& table) {
  // Whole huge pages, as servers want it.
  constexpr int64_t kRegionBytes = int64_t{66} << 20;
  static_assert(kRegionBytes % (2 << 20) == 0);
  const double seconds =
      options.on_gpu()
          ? CpuSecondsPerGigabyte(MeasuredServer(
                options, {"--region_memory=256MiB", "--region_slab=128MiB"}))
          : CpuSecondsPerGigabyte(CopyingServer(kRegionBytes));
  table.AtMost("seconds of its processors for a gigabyte", seconds, kBar, "s");
}

}  // namespace attnd::bench
