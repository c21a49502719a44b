// Rows with a pitch between pinned host memory and GPUs, beside plain copies.

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/peer/sections.h"
#include "tests/bench/gpu/peer/work.h"

namespace attnd::bench {
namespace {

constexpr size_t kBytes = 64 * kMiB;
constexpr size_t kRows = kBytes / kPitch;
// Copies over a PCIe bus take milliseconds.
constexpr Effort kEffort = {.least = 7, .most = 100, .seconds = 0.12};

// Pinned memory beside one GPU: random bytes, and room for them to return to.
struct HostArea {
  std::byte* up = nullptr;
  std::byte* down = nullptr;
};

std::vector<HostArea> MakeAreas(Team& team) {
  std::vector<HostArea> areas(team.size());
  for (int i = 0; i < team.size(); ++i) {
    Use(team[i].device);
    for (std::byte** area : {&areas[i].up, &areas[i].down}) {
      void* memory = nullptr;
      Check(cudaHostAlloc(&memory, kBytes, cudaHostAllocPortable));
      *area = static_cast<std::byte*>(memory);
    }
    Check(cudaMemcpy(areas[i].up, team[i].source, kBytes,
                     cudaMemcpyDeviceToHost));
  }
  return areas;
}

void FreeAreas(const std::vector<HostArea>& areas) {
  for (const HostArea& area : areas) {
    Check(cudaFreeHost(area.up));
    Check(cudaFreeHost(area.down));
  }
}

// Both directions for these members, at once, in slots of `width` bytes of each
// row (0: as one contiguous copy). On the GPU a slot's rows follow each other.
void MeasureWidth(Report& report, const std::string& who,
                  const std::vector<Member*>& members,
                  const std::vector<HostArea>& areas, size_t width) {
  const size_t slots = width == 0 ? 1 : kPitch / width;
  Work up;
  up.members = members;
  up.steps = static_cast<int>(slots);
  Work down = up;
  up.enqueue = [&](Member& member, int step, cudaStream_t stream) {
    const std::byte* host = areas[member.index].up;
    if (width == 0) {
      Check(cudaMemcpyAsync(member.target, host, kBytes, cudaMemcpyHostToDevice,
                            stream));
      return;
    }
    Check(cudaMemcpy2DAsync(member.target + step * width * kRows, width,
                            host + step * width, kPitch, width, kRows,
                            cudaMemcpyHostToDevice, stream));
  };
  down.enqueue = [&](Member& member, int step, cudaStream_t stream) {
    std::byte* host = areas[member.index].down;
    if (width == 0) {
      Check(cudaMemcpyAsync(host, member.target, kBytes, cudaMemcpyDeviceToHost,
                            stream));
      return;
    }
    Check(cudaMemcpy2DAsync(host + step * width, kPitch,
                            member.target + step * width * kRows, width, width,
                            kRows, cudaMemcpyDeviceToHost, stream));
  };
  const std::string name = width == 0 ? "1d" : absl::StrCat(width, "B");
  ClearTargets(up, kBytes);
  for (const Member* member : members) {
    std::memset(areas[member->index].down, 0, kBytes);
  }
  WallSeconds(up);
  for (const Member* member : members) {
    for (size_t slot = 0; slot < slots; ++slot) {
      const size_t slot_width = width == 0 ? kPitch : width;
      ExpectCopied(*member, member->seed,
                   {.offset = slot * slot_width * kRows,
                    .first = slot * slot_width,
                    .rows = kRows,
                    .width = slot_width,
                    .target_pitch = slot_width,
                    .source_pitch = kPitch},
                   "an upload");
    }
  }
  WallSeconds(down);
  for (const Member* member : members) {
    const HostArea& area = areas[member->index];
    if (std::memcmp(area.down, area.up, kBytes) != 0) {
      Fail(absl::StrCat("a download of ", name, " is not what was uploaded"));
    }
  }
  const auto rate = [&](const Work& work) {
    return 1e-9 * static_cast<double>(members.size() * kBytes) /
           MedianOf([&] { return WallSeconds(work); }, kEffort);
  };
  report.Row(absl::StrCat("up.", who, ".", name), rate(up), "GB/s");
  report.Row(absl::StrCat("down.", who, ".", name), rate(down), "GB/s");
}

}  // namespace

void MeasureHostRows(Team& team, Report& report) {
  Report::Note(
      "64 MiB in rows of 4 KiB of pinned memory, all of it, one slot of rows "
      "after another, enqueued to done; rates of all GPUs at once are sums");
  const std::vector<HostArea> areas = MakeAreas(team);
  std::vector<Member*> all;
  for (int i = 0; i < team.size(); ++i) {
    all.push_back(&team[i]);
    MeasureWidth(report, absl::StrCat("gpu", i), {&team[i]}, areas, 0);
  }
  for (size_t width : kWidths) {
    MeasureWidth(report, "gpu0", {&team[0]}, areas, width);
  }
  MeasureWidth(report, "all", all, areas, 0);
  for (size_t width : kWidths) MeasureWidth(report, "all", all, areas, width);
  FreeAreas(areas);
}

}  // namespace attnd::bench
