#ifndef ATTND_TESTS_BENCH_GPU_PEER_WORK_H_
#define ATTND_TESTS_BENCH_GPU_PEER_WORK_H_

// How long what members of a team do at once takes, and whether it was done.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/bench/clock.h"
#include "tests/bench/gpu/peer/calls.h"
#include "tests/bench/gpu/peer/team.h"
#include "tests/bench/stats.h"

namespace attnd::bench {

// Rows of tensors as a member that holds some of their heads sees them.
inline constexpr size_t kPitch = 4096;
inline constexpr size_t kWidths[] = {256, 512, 1024, 2048, 4096};

// Who copies from whom at once: the first `pullers` members, each from the next
// one in a ring of `ring`.
struct Way {
  const char* name;
  int pullers, ring;
};
// One way, both ways, and all in a ring where there are more than two.
std::vector<Way> WaysOf(const Team& team);

// What members do at once: each `steps` steps, in turns on its first `streams`
// streams for copies.
struct Work {
  std::vector<Member*> members;
  int steps = 1;
  int streams = 1;
  std::function<void(Member& member, int step, cudaStream_t stream)> enqueue;
};
// From before the first step is enqueued until the last is done, by the host's
// clock.
double WallSeconds(const Work& work);
// The same without the time to enqueue, by the GPUs' clocks: of the member that
// takes longest.
double GpuSeconds(Gate& gate, const Work& work);

// Writes zeros over `bytes` of the targets of those who work, and waits.
void ClearTargets(const Work& work, size_t bytes);
// Ends the program unless the member's target, from `offset` on, has what lies
// in another's source from `first` on: `rows` rows of `width` bytes.
struct Rows {
  size_t offset = 0, first = 0;
  size_t rows = 1, width = 0, target_pitch = 0, source_pitch = 0;
};
void ExpectCopied(const Member& member, uint32_t seed, const Rows& rows,
                  const char* what);

// How often something is measured: for `seconds`, but never less often than
// `least` nor more often than `most`.
struct Effort {
  size_t least = 7, most = 200;
  double seconds = 0.06;
};
// Of what `run` returns, once it has run to warm up.
template <class Run>
double MedianOf(Run run, const Effort& effort = {}) {
  run();
  std::vector<double> values;
  const double start = Seconds();
  while (values.size() < effort.least ||
         (values.size() < effort.most && Seconds() - start < effort.seconds)) {
    values.push_back(run());
  }
  return Median(std::move(values));
}

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PEER_WORK_H_
