// How soon what waits for an event starts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/clock.h"
#include "tests/bench/gpu/peer/kernels.h"
#include "tests/bench/gpu/peer/sections.h"
#include "tests/bench/gpu/peer/work.h"

namespace attnd::bench {
namespace {

// The first of two takes long enough for the host to enqueue the second.
constexpr size_t kCopyBytes = 64 * kMiB;
constexpr int64_t kFirstNanoseconds = 200'000;
constexpr int64_t kSecondNanoseconds = 20'000;
constexpr Effort kEffort = {.least = 50, .most = 300, .seconds = 0.1};

// What waits, or is waited for.
struct Step {
  Member* member;
  cudaStream_t stream;
  cudaEvent_t done;
  std::function<void()> enqueue;
  // What the GPU is busy with it, once it has begun.
  std::function<double()> seconds;
};

Step Pull(Team& team) {
  Member& to = team[0];
  const auto copy = [&team](Member& target, cudaStream_t stream) {
    Check(cudaMemcpyPeerAsync(target.target, target.device, team[1].source,
                              team[1].device, kCopyBytes, stream));
  };
  Step step;
  step.member = &to;
  step.stream = to.copies[0];
  step.done = to.copied[0];
  step.enqueue = [&to, copy] { copy(to, to.copies[0]); };
  step.seconds = [&team, &to, copy] {
    Work work;
    work.members = {&to};
    work.enqueue = [copy](Member& member, int, cudaStream_t stream) {
      copy(member, stream);
    };
    return GpuSeconds(team.gate(), work);
  };
  return step;
}

// A kernel, on the member's stream for kernels or on `stream`.
Step Kernel(Member& member, int64_t nanoseconds,
            cudaStream_t stream = nullptr) {
  Step step;
  step.member = &member;
  step.stream = stream != nullptr ? stream : member.kernels;
  step.done = member.computed;
  step.enqueue = [&member, nanoseconds, on = step.stream] {
    Check(Spin(nanoseconds, member.stamps, on));
  };
  step.seconds = [&member] {
    uint64_t stamps[2] = {};
    Check(cudaMemcpy(stamps, member.stamps, sizeof(stamps),
                     cudaMemcpyDeviceToHost));
    return 1e-9 * static_cast<double>(stamps[1] - stamps[0]);
  };
  return step;
}

double WallOf(const Step& step) {
  Use(step.member->device);
  const double start = Seconds();
  step.enqueue();
  Check(cudaEventRecord(step.done, step.stream));
  Poll(step.done);
  return Seconds() - start;
}

double WallOf(const Step& first, const Step& second) {
  Use(first.member->device);
  const double start = Seconds();
  first.enqueue();
  if (first.stream != second.stream) {
    Check(cudaEventRecord(first.done, first.stream));
    Check(cudaStreamWaitEvent(second.stream, first.done, 0));
  }
  Use(second.member->device);
  second.enqueue();
  Check(cudaEventRecord(second.done, second.stream));
  Poll(second.done);
  return Seconds() - start;
}

// Both together and the first alone have what is before the first and after the
// last in common. What is left, without the second's own time, is the gap; a
// copy's own time has in it what it takes to start once its stream is free.
void MeasureGap(Report& report, const std::string& name, const Step& first,
                const Step& second) {
  std::vector<double> gaps, chains, alones;
  WallOf(first, second);
  const double start = Seconds();
  while (gaps.size() < kEffort.least ||
         (gaps.size() < kEffort.most && Seconds() - start < kEffort.seconds)) {
    alones.push_back(WallOf(first));
    WallOf(second);
    const double own = second.seconds();
    chains.push_back(WallOf(first, second));
    gaps.push_back(chains.back() - alones.back() - own);
  }
  report.Row(name + ".both", 1e6 * Median(chains), "us");
  report.Row(name + ".first_alone", 1e6 * Median(alones), "us");
  report.Row(name + ".gap", 1e6 * Median(gaps), "us");
  report.Row(name + ".gap_p90", 1e6 * Quantile(gaps, 0.9), "us");
}

// By one GPU's clock: from when a kernel that watches the copy's last word sees
// it until one starts that waits for the copy's event. It is too long by the
// time of what lands after that word, if anything does.
void MeasureLanded(Team& team, Report& report) {
  Member& to = team[0];
  const Member& from = team[1];
  constexpr size_t kLast = kCopyBytes - sizeof(uint32_t);
  auto* last = reinterpret_cast<uint32_t*>(to.target + kLast);
  const uint32_t value =
      RandomWord(from.seed, static_cast<int64_t>(kLast / sizeof(uint32_t)));
  uint64_t* landed = to.stamps + 2;
  const double gap = MedianOf(
      [&] {
        Use(to.device);
        Check(cudaMemsetAsync(last, 0, sizeof(*last), to.copies[1]));
        Check(cudaStreamSynchronize(to.copies[1]));
        Check(StampArrival(last, value, landed, to.copies[1]));
        Check(cudaMemcpyPeerAsync(to.target, to.device, from.source,
                                  from.device, kCopyBytes, to.copies[0]));
        Check(cudaEventRecord(to.copied[0], to.copies[0]));
        Check(cudaStreamWaitEvent(to.kernels, to.copied[0], 0));
        Check(Spin(0, to.stamps, to.kernels));
        Check(cudaStreamSynchronize(to.kernels));
        Check(cudaStreamSynchronize(to.copies[1]));
        uint64_t stamps[3] = {};
        Check(cudaMemcpy(stamps, to.stamps, sizeof(stamps),
                         cudaMemcpyDeviceToHost));
        if (stamps[2] == 0) Fail("a copy's last word was not seen to land");
        return static_cast<double>(static_cast<int64_t>(stamps[0] - stamps[2]));
      },
      kEffort);
  report.Row("landed_to_kernel", 1e-3 * gap, "us");
}

// By one GPU's clock, from the end of a kernel to the start of one on another
// stream.
void MeasureStamped(Member& member, Report& report) {
  const double gap = MedianOf(
      [&] {
        Use(member.device);
        Check(Spin(kFirstNanoseconds, member.stamps, member.copies[0]));
        Check(cudaEventRecord(member.copied[0], member.copies[0]));
        Check(cudaStreamWaitEvent(member.kernels, member.copied[0], 0));
        Check(Spin(0, member.stamps + 2, member.kernels));
        Check(cudaStreamSynchronize(member.kernels));
        uint64_t stamps[4] = {};
        Check(cudaMemcpy(stamps, member.stamps, sizeof(stamps),
                         cudaMemcpyDeviceToHost));
        return static_cast<double>(static_cast<int64_t>(stamps[2] - stamps[1]));
      },
      kEffort);
  report.Row("kernel_to_kernel.stamped", 1e-3 * gap, "us");
}

}  // namespace

void MeasureWaiting(Team& team, Report& report) {
  Report::Note(
      "gap: both, less the first alone, less what the second itself takes; "
      "copies are of 64 MiB from device 1 to 0, kernels one thread");
  const Step pull = Pull(team);
  MeasureGap(report, "copy_to_kernel.same_stream", pull,
             Kernel(team[0], kSecondNanoseconds, team[0].copies[0]));
  MeasureGap(report, "copy_to_kernel.same_device", pull,
             Kernel(team[0], kSecondNanoseconds));
  MeasureGap(report, "copy_to_kernel.other_device", pull,
             Kernel(team[1], kSecondNanoseconds));
  MeasureGap(report, "kernel_to_copy.same_device",
             Kernel(team[0], kFirstNanoseconds), pull);
  MeasureGap(report, "kernel_to_copy.other_device",
             Kernel(team[1], kFirstNanoseconds), pull);
  MeasureGap(report, "kernel_to_kernel.other_device",
             Kernel(team[1], kFirstNanoseconds),
             Kernel(team[0], kSecondNanoseconds));
  MeasureLanded(team, report);
  MeasureStamped(team[0], report);
}

}  // namespace attnd::bench
