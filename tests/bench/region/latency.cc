// 1 MiB, in and out, beside what cannot be avoided: an empty call, the copies
// and the kernel. Two connections to each of some servers, calls alternating.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "attnd/client.h"
#include "attnd/region.h"
#include "tests/bench/clock.h"
#include "tests/bench/empty_caller.h"
#include "tests/bench/region/calls.h"
#include "tests/bench/region/section.h"
#include "tests/bench/region/server.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kBar = 1.3;
constexpr int kCalls = 1000, kWarmUp = 200;  // of each server
// 256 KiB each.
constexpr ForwardShape kShape = {client::DType::kF32, 64, 64, 8, 128};

struct Times {
  std::vector<double> empty, call, kernel, copies;  // microseconds

  double Ratio() const {
    return Median(call) / (Median(empty) + Median(copies) + Median(kernel));
  }
  void Add(const Times& other) {
    Append(other.empty, empty);
    Append(other.call, call);
    Append(other.kernel, kernel);
    Append(other.copies, copies);
  }
};

Times Measure(const RegionBenchOptions& options, const MeasuredServer& server) {
  EmptyCaller empty(server.target(), kHealthCheck);
  const std::unique_ptr<client::Client> client = NewClient(server.target());
  const auto region =
      Get(client::Region::Lease(server.region_socket(), kShape.region_bytes()));
  client->AddRegion(region);
  const client::ForwardCall call = PlaceRandomForward(*region, kShape);
  const std::vector<std::byte> from(4 * kShape.q_bytes(), std::byte{1});
  std::vector<std::byte> to(from.size());
  std::vector<std::byte> expected;
  Times times;
  for (int i = -kWarmUp; i < kCalls; ++i) {
    std::memset(call.o.data, 0xee, kShape.q_bytes());
    const double empty_s = Time([&] { empty.Call(); });
    client::Report report;
    const double call_s = Time([&] { report = CallByRegion(*client, call); });
    const double copies_s =
        Time([&] { std::memcpy(to.data(), from.data(), from.size()); });
    const auto* o = static_cast<const std::byte*>(call.o.data);
    if (expected.empty()) expected.assign(o, o + kShape.q_bytes());
    if (std::memcmp(o, expected.data(), expected.size()) != 0) {
      Require(absl::InternalError("an answer is not the first one's"));
    }
    if (i < 0) continue;
    times.empty.push_back(empty_s * 1e6);
    times.call.push_back(call_s * 1e6);
    times.kernel.push_back(absl::ToDoubleMicroseconds(report.compute));
    times.copies.push_back(
        options.copies_us >= 0 ? options.copies_us
        : options.on_gpu()
            ? absl::ToDoubleMicroseconds(report.upload + report.download)
            : copies_s * 1e6);
  }
  return times;
}

}  // namespace

void Latency(const RegionBenchOptions& options, Table& table) {
  Times times;
  std::vector<double> ratios;
  for (int i = 0; i < options.servers(); ++i) {
    const MeasuredServer server(options,
                                {"--region_memory=8MiB", "--region_slab=2MiB"});
    const Times one = Measure(options, server);
    ratios.push_back(one.Ratio());
    times.Add(one);
  }
  table.Shows("empty call, p50", Median(times.empty), "us");
  table.Shows("its copies, p50", Median(times.copies), "us");
  table.Shows("its kernel, p50", Median(times.kernel), "us");
  table.Shows("1 MiB by region, p50", Median(times.call), "us");
  table.Shows("1 MiB by region, p99", Quantile(times.call, 0.99), "us");
  table.AtMost("p50 over that of empty call, copies and kernel", times.Ratio(),
               kBar, "x");
  table.Shows("the same of one server, the least", Quantile(ratios, 0), "x");
  table.Shows("the same of one server, the most", Quantile(ratios, 1), "x");
}

}  // namespace attnd::bench
