// Copies from a peer: contiguous ones, and rows with a pitch.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/peer/sections.h"
#include "tests/bench/gpu/peer/work.h"

namespace attnd::bench {
namespace {

constexpr size_t kSizes[] = {1, 2, 4, 8, 16, 32, 64, 256};  // MiB
constexpr int kQueue = 16;
constexpr size_t kMostQueued = 1024 * kMiB;
// What all slots of a row take together.
constexpr size_t kAreaBytes = 32 * kMiB;
constexpr size_t kAreaRows = kAreaBytes / kPitch;

double Rate(size_t bytes, double seconds) {
  return 1e-9 * static_cast<double>(bytes) / seconds;
}

std::vector<Member*> Pullers(Team& team, const Way& way) {
  std::vector<Member*> members;
  for (int i = 0; i < way.pullers; ++i) members.push_back(&team[i]);
  return members;
}

// Copies of `bytes`, alone and in queues, as `enqueue` makes them.
void ReportQueues(Team& team, Report& report, const std::string& name,
                  size_t bytes, Work work) {
  const size_t pullers = work.members.size();
  work.steps = work.streams = 1;
  const double alone = MedianOf([&] { return WallSeconds(work); });
  report.Row(name + ".alone", 1e6 * alone, "us");
  report.Row(name + ".alone_rate", Rate(pullers * bytes, alone), "GB/s");
  work.steps =
      static_cast<int>(std::clamp<size_t>(kMostQueued / bytes, 1, kQueue));
  const size_t queued = pullers * bytes * work.steps;
  for (int streams : {1, 2}) {
    work.streams = streams;
    const std::string queue =
        absl::StrCat(name, streams == 1 ? ".queue" : ".two_streams");
    const double wall = MedianOf([&] { return WallSeconds(work); });
    const double gpu = MedianOf([&] { return GpuSeconds(team.gate(), work); });
    report.Row(queue + ".wall_rate", Rate(queued, wall), "GB/s");
    report.Row(queue + ".gpu_rate", Rate(queued, gpu), "GB/s");
  }
}

void MeasureWay(Team& team, Report& report, const Way& way, size_t bytes) {
  Work work;
  work.members = Pullers(team, way);
  work.enqueue = [&](Member& to, int step, cudaStream_t stream) {
    const Member& from = team.Next(to, way.ring);
    const size_t at = bytes * step % kBufferBytes;
    Check(cudaMemcpyPeerAsync(to.target + at, to.device, from.source + at,
                              from.device, bytes, stream));
  };
  const std::string name = absl::StrCat(way.name, ".", bytes / kMiB, "MiB");
  ClearTargets(work, bytes);
  WallSeconds(work);
  for (const Member* to : work.members) {
    ExpectCopied(*to, team.Next(*to, way.ring).seed, {.width = bytes},
                 name.c_str());
  }
  ReportQueues(team, report, name, bytes, work);
}

// The same copy by another call.
void MeasureMemcpyAsync(Team& team, Report& report, size_t bytes) {
  Work work;
  work.members = {&team[0]};
  work.enqueue = [&](Member& to, int step, cudaStream_t stream) {
    const size_t at = bytes * step % kBufferBytes;
    Check(cudaMemcpyAsync(to.target + at, team[1].source + at, bytes,
                          cudaMemcpyDefault, stream));
  };
  ClearTargets(work, bytes);
  WallSeconds(work);
  ExpectCopied(team[0], team[1].seed, {.width = bytes}, "cudaMemcpyAsync");
  ReportQueues(team, report, absl::StrCat("memcpy_async.", bytes / kMiB, "MiB"),
               bytes, work);
}

// The same copy of memory that is of no pool.
void MeasurePlainMemory(Team& team, Report& report, size_t bytes) {
  constexpr size_t kPlainBytes = 256 * kMiB;
  void *source = nullptr, *target = nullptr;
  Use(team[1].device);
  Check(cudaMalloc(&source, kPlainBytes));
  Check(cudaMemcpy(source, team[1].source, kPlainBytes,
                   cudaMemcpyDeviceToDevice));
  Check(cudaDeviceSynchronize());
  Use(team[0].device);
  Check(cudaMalloc(&target, kPlainBytes));
  Work work;
  work.members = {&team[0]};
  work.enqueue = [&](Member& to, int step, cudaStream_t stream) {
    const size_t at = bytes * step % kPlainBytes;
    Check(cudaMemcpyPeerAsync(static_cast<std::byte*>(target) + at, to.device,
                              static_cast<std::byte*>(source) + at,
                              team[1].device, bytes, stream));
  };
  ReportQueues(team, report, absl::StrCat("plain_memory.", bytes / kMiB, "MiB"),
               bytes, work);
  // By way of the buffer that can be compared.
  ClearTargets(work, bytes);
  Check(cudaMemcpy(team[0].target, target, bytes, cudaMemcpyDeviceToDevice));
  Check(cudaDeviceSynchronize());
  ExpectCopied(team[0], team[1].seed, {.width = bytes}, "memory of no pool");
  Check(cudaFree(target));
  Use(team[1].device);
  Check(cudaFree(source));
}

// Slot after slot of `width` bytes of each row, into rows that are as far apart
// as before or follow each other.
void MeasureWidth(Team& team, Report& report, const Way& way, size_t width,
                  bool packs) {
  const size_t slots = kPitch / width;
  const size_t to_pitch = packs ? width : kPitch;
  const auto offset = [&](size_t slot) {
    return packs ? slot * width * kAreaRows : slot * width;
  };
  Work work;
  work.members = Pullers(team, way);
  work.enqueue = [&](Member& to, int step, cudaStream_t stream) {
    const Member& from = team.Next(to, way.ring);
    Check(cudaMemcpy2DAsync(to.target + offset(step), to_pitch,
                            from.source + step * width, kPitch, width,
                            kAreaRows, cudaMemcpyDefault, stream));
  };
  const std::string name =
      absl::StrCat(way.name, packs ? ".packed" : ".pitched", ".", width, "B");
  const double alone = MedianOf([&] { return WallSeconds(work); });
  work.steps = static_cast<int>(slots);
  ClearTargets(work, kAreaBytes);
  WallSeconds(work);
  for (const Member* to : work.members) {
    for (size_t slot = 0; slot < slots; ++slot) {
      ExpectCopied(*to, team.Next(*to, way.ring).seed,
                   {.offset = offset(slot),
                    .first = slot * width,
                    .rows = kAreaRows,
                    .width = width,
                    .target_pitch = to_pitch,
                    .source_pitch = kPitch},
                   name.c_str());
    }
  }
  const size_t bytes = work.members.size() * kAreaBytes;
  const double wall = MedianOf([&] { return WallSeconds(work); });
  const double gpu = MedianOf([&] { return GpuSeconds(team.gate(), work); });
  report.Row(name + ".slot_alone", 1e6 * alone, "us");
  report.Row(name + ".slot_alone_rate", Rate(bytes / slots, alone), "GB/s");
  report.Row(name + ".wall_rate", Rate(bytes, wall), "GB/s");
  report.Row(name + ".gpu_rate", Rate(bytes, gpu), "GB/s");
}

}  // namespace

void MeasurePulls(Team& team, Report& report) {
  Report::Note(
      "alone: enqueued to done; queue: 16 copies (4 of 256 MiB) back to back "
      "on one stream or on two, wall with the time to enqueue, gpu without; "
      "rates of both ways or a ring are sums");
  for (const Way& way : WaysOf(team)) {
    for (size_t mib : kSizes) MeasureWay(team, report, way, mib * kMiB);
  }
  for (size_t mib : {1, 16, 64}) MeasureMemcpyAsync(team, report, mib * kMiB);
  for (size_t mib : {1, 16, 64}) MeasurePlainMemory(team, report, mib * kMiB);
}

void MeasureRowPulls(Team& team, Report& report) {
  if (!team.has_pools()) {
    Report::Note("left out: the members' pools are not open to each other");
    return;
  }
  Report::Note(
      "32 MiB in rows of 4 KiB, all of it, one slot of rows after another; "
      "packed: the copy's rows follow each other; slot_alone: one slot, "
      "enqueued to done");
  for (const Way& way : WaysOf(team)) {
    for (bool packs : {true, false}) {
      for (size_t width : kWidths) {
        MeasureWidth(team, report, way, width, packs);
      }
    }
  }
}

}  // namespace attnd::bench
