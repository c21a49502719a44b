// A call by region beside memcpy of the bytes that it hands over, and beside
// the same call in messages: caller's memory to caller's memory, one
// connection, the server in a process of its own with a device that only
// copies, calls interleaved.

#include <malloc.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
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

constexpr double kMemcpyBar = 0.85;
constexpr double kUnaryBar = 3;

constexpr int kStarts = 6;  // memory lies elsewhere each time
constexpr int kRounds = 20, kWarmUp = 5;
constexpr int64_t kMib = 16;
// 16 MiB each.
constexpr ForwardShape kShape = {client::DType::kF32, 4096, 4096, 8, 128};

struct Times {
  std::vector<double> region, unary, all, output;  // seconds
};

// Tensors in memory of the process' own.
class OwnTensors {
 public:
  explicit OwnTensors(const client::ForwardCall& like) : call_(like) {
    for (auto& tensor : tensors_) tensor.resize(kMib << 20);
    call_.q.data = tensors_[0].data();
    call_.k.data = tensors_[1].data();
    call_.v.data = tensors_[2].data();
    call_.o.data = tensors_[3].data();
    std::memcpy(tensors_[0].data(), like.q.data, kMib << 20);
    std::memcpy(tensors_[1].data(), like.k.data, kMib << 20);
    std::memcpy(tensors_[2].data(), like.v.data, kMib << 20);
  }
  const client::ForwardCall& call() const { return call_; }
  // So many of its tensors, from the first on.
  void CopyFrom(const OwnTensors& from, int tensors) {
    for (int i = 0; i < tensors; ++i) {
      std::memcpy(tensors_[i].data(), from.tensors_[i].data(), kMib << 20);
    }
  }

 private:
  std::array<std::vector<std::byte>, 4> tensors_;
  client::ForwardCall call_;
};

template <typename Call>
double TimeAnswer(const client::ForwardCall& call, Call run) {
  std::memset(call.o.data, 0xee, kMib << 20);
  const double seconds = Time(run);
  if (std::memcmp(call.o.data, call.q.data, kMib << 20) != 0) {
    Require(absl::InternalError("the answer is not the first tensor"));
  }
  return seconds;
}

void RunStart(Times& times) {
  const CopyingServer server(kShape.region_bytes());
  const std::unique_ptr<client::Client> client = NewClient(server.target());
  const auto region =
      Get(client::Region::Lease(server.region_socket(), kShape.region_bytes()));
  client->AddRegion(region);
  const client::ForwardCall placed = PlaceRandomForward(*region, kShape);
  const OwnTensors own(placed);
  OwnTensors copy(placed);
  client::CallOptions unary;
  unary.transport = client::TransportKind::kUnary;
  for (int round = -kWarmUp; round < kRounds; ++round) {
    const double by_region =
        TimeAnswer(placed, [&] { CallByRegion(*client, placed); });
    const double all = Time([&] { copy.CopyFrom(own, 4); });
    const double in_messages = TimeAnswer(
        own.call(), [&] { Get(client->Forward(own.call(), unary)); });
    const double output = Time([&] { copy.CopyFrom(own, 1); });
    if (round < 0) continue;
    times.region.push_back(by_region);
    times.unary.push_back(in_messages);
    times.all.push_back(all);
    times.output.push_back(output);
  }
}

}  // namespace

void Copies(const RegionBenchOptions& /*options*/, Table& table) {
  // Fresh pages cost more than a copy into them: client/README.md.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  Times times;
  for (int start = 0; start < kStarts; ++start) RunStart(times);
  table.Shows("by region, p50", Median(times.region) * 1e3, "ms");
  table.Shows("in messages, p50", Median(times.unary) * 1e3, "ms");
  table.Shows("memcpy of the 64 MiB, p50", Median(times.all) * 1e3, "ms");
  table.Shows("memcpy of the 16 MiB that the device copies, p50",
              Median(times.output) * 1e3, "ms");
  table.AtLeast("by region over memcpy of the same bytes",
                Median(times.all) / Median(times.region), kMemcpyBar, "x");
  table.AtLeast("by region over in messages",
                Median(times.unary) / Median(times.region), kUnaryBar, "x");
}

}  // namespace attnd::bench
