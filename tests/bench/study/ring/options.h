#ifndef ATTND_TESTS_BENCH_STUDY_RING_OPTIONS_H_
#define ATTND_TESTS_BENCH_STUDY_RING_OPTIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/plan_kind.h"
#include "tests/bench/gpu/plan/cases.h"

namespace attnd::bench {

using Devices = std::vector<std::unique_ptr<Backend>>;

// What ring_study.cc says of its flags.
struct RingStudyOptions {
  std::string what;  // trace, accuracy or time
  std::string device = "cpu*8";
  std::vector<PlanKind> plans = {PlanKind::kGather, PlanKind::kRing,
                                 PlanKind::kStriped, PlanKind::kZigzag};
  std::vector<int> lens = {4096};
  std::vector<Op> ops = {Op::kForward};
  int batch = 1, heads = 16, dim = 128;
  bool causal = true;
  int sections = 0;  // of gather; 0: as it finds best
  // Of trace: the devices that the plan is made for; 0: as --device has them.
  int tflops = 0, link_gb = 0;
  int rounds = 2;
  double settle_seconds = 1, timed_seconds = 2;

  Shape shape(int len) const {
    return {.batch = batch,
            .len = len,
            .q_heads = heads,
            .kv_heads = heads,
            .dim = dim,
            .causal = causal};
  }
};

// INVALID_ARGUMENT: an argument is none of ours.
absl::StatusOr<RingStudyOptions> ParseRingStudyOptions(int argc, char** argv);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_STUDY_RING_OPTIONS_H_
