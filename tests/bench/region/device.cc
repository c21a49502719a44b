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
constexpr absl::Duration kBusyPoll = absl::Milliseconds(1);
constexpr double kLoopBar = 0.9;
constexpr int kCalls = 800, kWarmUp = 200;  // of each server
constexpr int kLoops = 4, kLongCalls = 50, kTurns = 3;
constexpr ForwardShape kShape = {client::DType::kBF16, 4096, 4096, 16, 128};
constexpr ForwardShape kLongShape = {client::DType::kBF16, 16384, 16384, 16,
                                     128};

// A client with a region of a GPU's memory, and a causal forward there.
class DeviceCaller {
 public:
  DeviceCaller(const RegionBenchOptions& options, const MeasuredServer& server,
               const ForwardShape& shape,
               absl::Duration busy_poll = absl::ZeroDuration())
      : shape_(shape),
        gpu_(Get(client::CudaGpu::Open(options.gpu))),
        client_(NewClient(server.target(), busy_poll)),
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

// Of calls, empty ones and others in turn; microseconds.
struct Times {
  std::vector<double> empty, kernel, rest;

  double Beyond(double empty_us) const { return Median(rest) - empty_us; }
  void Add(const Times& other) {
    Append(other.empty, empty);
    Append(other.kernel, kernel);
    Append(other.rest, rest);
  }
};

// Clients sleep until their answer is there, or look for it all the time, as
// whoever cares for microseconds has them do.
struct BothTimes {
  Times sleeping, polling;
};

BothTimes MeasureCalls(const RegionBenchOptions& options,
                       const MeasuredServer& server) {
  EmptyCaller empty(server.target(), kHealthCheck);
  EmptyCaller polling_empty(server.target(), kHealthCheck, kBusyPoll);
  DeviceCaller caller(options, server, kShape);
  DeviceCaller polling_caller(options, server, kShape, kBusyPoll);
  BothTimes both;
  for (int i = -kWarmUp; i < kCalls; ++i) {
    const auto measure = [i](EmptyCaller& empty, DeviceCaller& caller,
                             Times& times) {
      const double empty_s = Time([&] { empty.Call(); });
      client::Report report;
      const double call_s = Time([&] { report = caller.Call(); });
      if (i < 0) return;
      const double kernel = absl::ToDoubleMicroseconds(report.compute);
      times.empty.push_back(empty_s * 1e6);
      times.kernel.push_back(kernel);
      times.rest.push_back(call_s * 1e6 - kernel);
    };
    measure(empty, caller, both.sleeping);
    measure(polling_empty, polling_caller, both.polling);
  }
  caller.Check();
  polling_caller.Check();
  return both;
}

void BesideAnEmptyCall(const RegionBenchOptions& options, Table& table) {
  Times sleeping, polling;
  std::vector<double> each;
  for (int i = 0; i < options.servers(); ++i) {
    const MeasuredServer server(options, {});
    const BothTimes one = MeasureCalls(options, server);
    each.push_back(one.sleeping.Beyond(Median(one.sleeping.empty)));
    sleeping.Add(one.sleeping);
    polling.Add(one.polling);
  }
  const double empty_us = Median(sleeping.empty);
  table.Shows("empty call, p50", empty_us, "us");
  table.Shows("empty call that polls, p50", Median(polling.empty), "us");
  table.Shows("the kernel, p50", Median(sleeping.kernel), "us");
  table.AtMost("whole call less its kernel, less an empty call, p50",
               sleeping.Beyond(empty_us), kBesideEmptyUs, "us");
  table.Shows("the same of one server, the least", Quantile(each, 0), "us");
  table.Shows("the same of one server, the most", Quantile(each, 1), "us");
  table.Shows("the same of a client that polls, p50", polling.Beyond(empty_us),
              "us");
  table.Shows("the same, less an empty call that polls, p50",
              polling.Beyond(Median(polling.empty)), "us");
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
  BesideAnEmptyCall(options, table);
  const MeasuredServer server(options, {});
  ClosedLoop(options, server, table);
}

}  // namespace attnd::bench
