#include "tests/bench/gpu/peer/work.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/peer/kernels.h"

namespace attnd::bench {

std::vector<Way> WaysOf(const Team& team) {
  std::vector<Way> ways = {{"one_way", 1, 2}, {"both_ways", 2, 2}};
  if (team.size() > 2) ways.push_back({"ring", team.size(), team.size()});
  return ways;
}

double WallSeconds(const Work& work) {
  const double start = Seconds();
  for (int step = 0; step < work.steps; ++step) {
    for (Member* member : work.members) {
      work.enqueue(*member, step, member->copies[step % work.streams]);
    }
  }
  for (Member* member : work.members) {
    for (int i = 0; i < work.streams; ++i) {
      Check(cudaEventRecord(member->copied[i], member->copies[i]));
    }
  }
  for (Member* member : work.members) {
    for (int i = 0; i < work.streams; ++i) Poll(member->copied[i]);
  }
  return Seconds() - start;
}

double GpuSeconds(Gate& gate, const Work& work) {
  for (Member* member : work.members) {
    Use(member->device);
    for (int i = 0; i < work.streams; ++i) {
      gate.Hold(member->copies[i]);
      Check(cudaEventRecord(member->begin[i], member->copies[i]));
    }
  }
  for (int step = 0; step < work.steps; ++step) {
    for (Member* member : work.members) {
      work.enqueue(*member, step, member->copies[step % work.streams]);
    }
  }
  for (Member* member : work.members) {
    for (int i = 0; i < work.streams; ++i) {
      Check(cudaEventRecord(member->end[i], member->copies[i]));
    }
  }
  gate.Open();
  double longest = 0;
  for (Member* member : work.members) {
    for (int i = 0; i < work.streams; ++i) Poll(member->end[i]);
    for (int i = 0; i < work.streams; ++i) {
      for (int j = 0; j < work.streams; ++j) {
        longest =
            std::max(longest, SecondsBetween(member->begin[i], member->end[j]));
      }
    }
  }
  return longest;
}

void ClearTargets(const Work& work, size_t bytes) {
  for (Member* member : work.members) {
    Use(member->device);
    Check(cudaMemsetAsync(member->target, 0, bytes, member->kernels));
    Check(cudaStreamSynchronize(member->kernels));
  }
}

void ExpectCopied(const Member& member, uint32_t seed, const Rows& rows,
                  const char* what) {
  const auto in_words = [](size_t bytes) {
    return static_cast<int64_t>(bytes / sizeof(uint32_t));
  };
  Use(member.device);
  Check(
      cudaMemsetAsync(member.wrong, 0, sizeof(*member.wrong), member.kernels));
  Check(CountWrong(
      {.data = reinterpret_cast<uint32_t*>(member.target + rows.offset),
       .rows = static_cast<int64_t>(rows.rows),
       .width = in_words(rows.width),
       .pitch = in_words(rows.target_pitch),
       .seed = seed,
       .first = in_words(rows.first),
       .source_pitch = in_words(rows.source_pitch)},
      member.wrong, member.kernels));
  uint32_t wrong = 0;
  Check(cudaMemcpyAsync(&wrong, member.wrong, sizeof(wrong),
                        cudaMemcpyDeviceToHost, member.kernels));
  Check(cudaStreamSynchronize(member.kernels));
  if (wrong == 0) return;
  Fail(absl::StrCat(what, ": on device ", member.device, " ", wrong,
                    " words of ", rows.rows * rows.width / sizeof(uint32_t),
                    " are not what was copied"));
}

}  // namespace attnd::bench
