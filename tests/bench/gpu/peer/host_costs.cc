// What calls cost the thread that makes them, and what it takes to wake
// another.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/peer/kernels.h"
#include "tests/bench/gpu/peer/sections.h"
#include "tests/bench/gpu/peer/work.h"

namespace attnd::bench {
namespace {

// Calls between two waits: so few that no queue of the driver is ever full.
constexpr int kGroup = 16;
constexpr int kGroups = 80;  // after one to warm up
constexpr int kBatch = 8;
constexpr size_t kCopyBytes = kMiB;
constexpr size_t kRowWidth = 1024;
constexpr size_t kRowCount = 256;

class Costs {
 public:
  Costs(Team& team, Report& report)
      : team_(team), report_(report), us_(team[0]), other_(team[1]) {
    for (int i = 0; i < kGroup; ++i) {
      Use(us_.device);
      ours_.push_back(MakeEvent(cudaEventDisableTiming));
      Use(other_.device);
      others_.push_back(MakeEvent(cudaEventDisableTiming));
    }
    void* memory = nullptr;
    Check(cudaHostAlloc(&memory, kRowCount * kPitch, cudaHostAllocPortable));
    host_ = static_cast<std::byte*>(memory);
    Check(cudaMemcpy(host_, us_.source, kRowCount * kPitch,
                     cudaMemcpyDeviceToHost));
    Use(us_.device);
  }
  ~Costs() {
    for (cudaEvent_t event : ours_) Check(cudaEventDestroy(event));
    for (cudaEvent_t event : others_) Check(cudaEventDestroy(event));
    Check(cudaFreeHost(host_));
  }
  Costs(const Costs&) = delete;
  Costs& operator=(const Costs&) = delete;

  void Run() {
    MeasureDevice();
    MeasureEvents();
    MeasureEnqueues();
    MeasureBatch();
  }

 private:
  using Call = std::function<void(int)>;

  // Calls in groups. Each group finds its stream idle, or held up if `held`,
  // as it is where work is queued already.
  void Measure(const std::string& name, bool held, const Call& call) {
    std::vector<double> micros;
    for (int group = 0; group <= kGroups; ++group) {
      if (held) team_.gate().Hold(us_.copies[0]);
      for (int i = 0; i < kGroup; ++i) {
        const double start = Seconds();
        call(i);
        const double end = Seconds();
        if (group > 0) micros.push_back(1e6 * (end - start));
      }
      if (held) team_.gate().Open();
      Check(cudaStreamSynchronize(us_.copies[0]));
    }
    report_.Row(name, Median(micros), "us");
    report_.Row(name + ".p99", Quantile(std::move(micros), 0.99), "us");
  }
  void MeasureBoth(const std::string& name, const Call& call) {
    Measure(name + ".idle", false, call);
    Measure(name + ".queued", true, call);
  }

  void MeasureDevice() {
    Measure("set_device.same", false,
            [&](int) { Check(cudaSetDevice(us_.device)); });
    Measure("set_device.switch", false, [&](int i) {
      Check(cudaSetDevice(i % 2 == 0 ? other_.device : us_.device));
    });
    Use(us_.device);
  }

  void MeasureEvents() {
    MeasureBoth("event_record", [&](int i) {
      Check(cudaEventRecord(ours_[i], us_.copies[0]));
    });
    // Events of another device that have passed.
    for (cudaEvent_t event : others_) {
      Check(cudaEventRecord(event, other_.copies[0]));
    }
    Check(cudaStreamSynchronize(other_.copies[0]));
    Measure("wait_event.passed", false, [&](int i) {
      Check(cudaStreamWaitEvent(us_.copies[0], others_[i], 0));
    });
    MeasurePendingWaits();
  }

  // Of events of another device that have not passed, each waited for once.
  void MeasurePendingWaits() {
    std::vector<double> micros;
    for (int group = 0; group <= kGroups; ++group) {
      Use(other_.device);
      team_.gate().Hold(other_.copies[0]);
      for (cudaEvent_t event : others_) {
        Check(cudaEventRecord(event, other_.copies[0]));
      }
      Use(us_.device);
      for (cudaEvent_t event : others_) {
        const double start = Seconds();
        Check(cudaStreamWaitEvent(us_.copies[0], event, 0));
        const double end = Seconds();
        if (group > 0) micros.push_back(1e6 * (end - start));
      }
      team_.gate().Open();
      Check(cudaStreamSynchronize(us_.copies[0]));
      Check(cudaStreamSynchronize(other_.copies[0]));
    }
    report_.Row("wait_event.pending", Median(micros), "us");
    report_.Row("wait_event.pending.p99", Quantile(std::move(micros), 0.99),
                "us");
  }

  void Copy(int i) {
    const size_t at = kCopyBytes * i;
    Check(cudaMemcpyPeerAsync(us_.target + at, us_.device, other_.source + at,
                              other_.device, kCopyBytes, us_.copies[0]));
  }

  void MeasureEnqueues() {
    MeasureBoth("launch_empty", [&](int) {
      Check(cudaLaunchKernel(EmptyKernel(), dim3{1, 1, 1}, dim3{1, 1, 1},
                             nullptr, 0, us_.copies[0]));
    });
    MeasureBoth("memcpy_peer", [&](int i) { Copy(i); });
    if (team_.has_pools()) {
      MeasureBoth("memcpy_2d.peer", [&](int i) {
        Check(cudaMemcpy2DAsync(us_.target + kCopyBytes * i, kRowWidth,
                                other_.source + kCopyBytes * i, kPitch,
                                kRowWidth, kRowCount, cudaMemcpyDefault,
                                us_.copies[0]));
      });
    }
    MeasureBoth("memcpy_2d.upload", [&](int i) {
      Check(cudaMemcpy2DAsync(us_.target + kCopyBytes * i, kRowWidth, host_,
                              kPitch, kRowWidth, kRowCount,
                              cudaMemcpyHostToDevice, us_.copies[0]));
    });
    MeasureBoth("memcpy.upload", [&](int i) {
      Check(cudaMemcpyAsync(us_.target + kCopyBytes * i, host_,
                            kRowWidth * kRowCount, cudaMemcpyHostToDevice,
                            us_.copies[0]));
    });
  }

  // Eight copies from the peer by one call.
  cudaError_t CopyBatch() {
#if CUDART_VERSION >= 13000
    void* targets[kBatch];
    const void* sources[kBatch];
    size_t sizes[kBatch];
    for (size_t i = 0; i < kBatch; ++i) {
      targets[i] = us_.target + kCopyBytes * i;
      sources[i] = other_.source + kCopyBytes * i;
      sizes[i] = kCopyBytes;
    }
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.srcLocHint.type = cudaMemLocationTypeDevice;
    attributes.srcLocHint.id = other_.device;
    attributes.dstLocHint.type = cudaMemLocationTypeDevice;
    attributes.dstLocHint.id = us_.device;
    size_t first = 0;
    return cudaMemcpyBatchAsync(targets, sources, sizes, kBatch, &attributes,
                                &first, 1, us_.copies[0]);
#else
    return cudaErrorNotSupported;
#endif
  }

  void MeasureBatch() {
    Work eight;
    eight.members = {&us_};
    eight.steps = kBatch;
    eight.enqueue = [&](Member&, int step, cudaStream_t) { Copy(step); };
    report_.Row("memcpy_peer_8.until_done",
                1e6 * MedianOf([&] { return WallSeconds(eight); }), "us");
    ClearTargets(eight, kBatch * kCopyBytes);
    const cudaError_t error = CopyBatch();
    if (error != cudaSuccess) {
      cudaGetLastError();
      Report::Note(
          absl::StrCat("cudaMemcpyBatchAsync: ", cudaGetErrorString(error)));
      return;
    }
    Check(cudaStreamSynchronize(us_.copies[0]));
    ExpectCopied(us_, other_.seed, {.width = kBatch * kCopyBytes},
                 "cudaMemcpyBatchAsync");
    MeasureBoth("memcpy_batch_8", [&](int) { Check(CopyBatch()); });
    Work batch = eight;
    batch.steps = 1;
    batch.enqueue = [&](Member&, int, cudaStream_t) { Check(CopyBatch()); };
    report_.Row("memcpy_batch_8.until_done",
                1e6 * MedianOf([&] { return WallSeconds(batch); }), "us");
  }

  Team& team_;
  Report& report_;
  Member& us_;
  Member& other_;
  std::vector<cudaEvent_t> ours_, others_;
  std::byte* host_ = nullptr;
};

// From just before a thread is told of a round until it goes on, in
// microseconds: it spins, or sleeps on a condition variable.
std::vector<double> WakeMicros(bool spins) {
  constexpr int kRounds = 1200;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> round = 0, seen = 0;
  double woken = 0;  // belongs to whoever may write the next round
  std::thread waiter([&] {
    for (int next = 1; next <= kRounds; ++next) {
      if (spins) {
        while (round.load(std::memory_order_acquire) < next) {
        }
      } else {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return round >= next; });
      }
      woken = Seconds();
      seen.store(next, std::memory_order_release);
    }
  });
  std::vector<double> micros;
  for (int next = 1; next <= kRounds; ++next) {
    // By then the waiter waits, and where it sleeps it is asleep.
    std::this_thread::sleep_for(std::chrono::microseconds(60));
    const double start = Seconds();
    if (spins) {
      round.store(next, std::memory_order_release);
    } else {
      {
        const std::lock_guard lock(mutex);
        round = next;
      }
      changed.notify_one();
    }
    while (seen.load(std::memory_order_acquire) < next) {
    }
    micros.push_back(1e6 * (woken - start));
  }
  waiter.join();
  return micros;
}

}  // namespace

void MeasureHostCosts(Team& team, Report& report) {
  Report::Note(
      "medians of 1280 calls, 1200 wakes; idle: onto a stream with nothing to "
      "do; queued: onto one that is held up; copies of 1 MiB, rows of 1 KiB");
  Costs(team, report).Run();
  for (bool spins : {false, true}) {
    std::vector<double> micros = WakeMicros(spins);
    const std::string name = spins ? "wake.spin" : "wake.condition_variable";
    report.Row(name, Median(micros), "us");
    report.Row(name + ".p99", Quantile(std::move(micros), 0.99), "us");
  }
}

}  // namespace attnd::bench
