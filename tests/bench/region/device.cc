// Regions of GPU memory: no byte of a call's tensors crosses the bus, so all
// that is left beside the kernel is an empty call.

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "attnd/device_region.h"
#include "attnd/region.h"
#include "client/cuda_driver.h"
#include "tests/bench/clock.h"
#include "tests/bench/empty_caller.h"
#include "tests/bench/region/calls.h"
#include "tests/bench/region/section.h"
#include "tests/bench/region/server.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kBesideEmptyUs = 60;
constexpr double kLoopBar = 0.9;
constexpr int kCalls = 2000, kWarmUp = 200;
constexpr int kLoops = 4, kLongCalls = 50, kTurns = 3;
constexpr ForwardShape kShape = {client::DType::kBF16, 4096, 4096, 16, 128};
constexpr ForwardShape kLongShape = {client::DType::kBF16, 16384, 16384, 16,
                                     128};

// A client with a region of a GPU's memory, and a causal forward there.
class DeviceCaller {
 public:
  DeviceCaller(const RegionBenchOptions& options, const MeasuredServer& server,
               const ForwardShape& shape)
      : shape_(shape),
        gpu_(Get(client::CudaGpu::Open(options.gpu))),
        client_(NewClient(server.target())),
        region_(Get(client::AllocateDeviceRegion(
            server.region_socket(), shape.region_bytes(), options.gpu))) {
    client_->AddRegion(region_);
    call_ = PlaceForward(*region_, shape);
    call_.attention.mask.causal = true;
    uint64_t seed = 0;
    for (const client::ConstTensor* tensor : {&call_.q, &call_.k, &call_.v}) {
      const auto values = RandomValues(shape.dtype, shape.kv_bytes(), ++seed);
      Copy(values, const_cast<void*>(tensor->data));
    }
    Copy(std::vector<std::byte>(shape.q_bytes(), std::byte{0xee}),
         call_.o.data);
  }

  client::Report Call() { return CallByRegion(*client_, call_); }

  // The first row sees the first column alone; the last row is somewhere.
  void Check() const {
    const int64_t row = shape_.heads * shape_.dim * 2;
    std::vector<std::byte> o(shape_.q_bytes()), v(row);
    Require(gpu_->CopyToHost(call_.o.data, shape_.q_bytes(), o.data()));
    Require(gpu_->CopyToHost(call_.v.data, row, v.data()));
    const bool is_poison = std::all_of(o.end() - row, o.end(), [](auto byte) {
      return byte == std::byte{0xee};
    });
    if (std::memcmp(o.data(), v.data(), row) != 0 || is_poison) {
      Require(absl::InternalError("the answer is not where it belongs"));
    }
  }

 private:
  void Copy(const std::vector<std::byte>& from, void* to) const {
    Require(gpu_->CopyToDevice(from.data(), int64_t(from.size()), to));
  }

  const ForwardShape shape_;
  const std::shared_ptr<client::CudaGpu> gpu_;
  const std::unique_ptr<client::Client> client_;
  const std::shared_ptr<client::Region> region_;
  client::ForwardCall call_;
};

void BesideAnEmptyCall(const RegionBenchOptions& options,
                       const MeasuredServer& server, Table& table) {
  EmptyCaller empty(server.target(), kHealthCheck);
  DeviceCaller caller(options, server, kShape);
  std::vector<double> empty_us, kernel_us, rest_us;
  for (int i = -kWarmUp; i < kCalls; ++i) {
    const double empty_s = Time([&] { empty.Call(); });
    client::Report report;
    const double call_s = Time([&] { report = caller.Call(); });
    if (i < 0) continue;
    const double kernel = absl::ToDoubleMicroseconds(report.compute);
    empty_us.push_back(empty_s * 1e6);
    kernel_us.push_back(kernel);
    rest_us.push_back(call_s * 1e6 - kernel);
  }
  caller.Check();
  table.Shows("empty call, p50", Median(empty_us), "us");
  table.Shows("the kernel, p50", Median(kernel_us), "us");
  table.AtMost("whole call less its kernel, less an empty call, p50",
               Median(rest_us) - Median(empty_us), kBesideEmptyUs, "us");
}

// TFLOP/s of all callers in closed loops.
double LoopTflops(std::vector<std::unique_ptr<DeviceCaller>>& callers) {
  std::atomic<double> flops = 0;
  const double seconds = Time([&] {
    std::vector<std::thread> threads;
    for (const auto& caller : callers) {
      threads.emplace_back([&] {
        for (int i = 0; i < kLongCalls; ++i) flops += caller->Call().flops;
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  return flops / seconds / 1e12;
}

void ClosedLoop(const RegionBenchOptions& options, const MeasuredServer& server,
                Table& table) {
  std::vector<std::unique_ptr<DeviceCaller>> callers;
  for (int i = 0; i < kLoops; ++i) {
    callers.push_back(
        std::make_unique<DeviceCaller>(options, server, kLongShape));
  }
  std::vector<double> alone, loop;
  LoopTflops(callers);  // warms up
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int i = 0; i < kLongCalls; ++i) {
      const client::Report report = callers[0]->Call();
      alone.push_back(report.flops / absl::ToDoubleSeconds(report.compute) /
                      1e12);
    }
    loop.push_back(LoopTflops(callers));
  }
  for (const auto& caller : callers) caller->Check();
  table.Shows("the kernel alone, p50", Median(alone), "TFLOP/s");
  table.Shows("a closed loop of 4", Median(loop), "TFLOP/s");
  table.AtLeast("closed loop of 4 over the kernel alone",
                Median(loop) / Median(alone), kLoopBar, "x");
}

}  // namespace

void DeviceRegions(const RegionBenchOptions& options, Table& table) {
  const MeasuredServer server(options, {});
  BesideAnEmptyCall(options, server, table);
  ClosedLoop(options, server, table);
}

}  // namespace attnd::bench
