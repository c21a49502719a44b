#ifndef ATTND_TESTS_BENCH_GPU_PLAN_OPTIONS_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/plan/plan_request.h"

namespace attnd::bench {

// What plan_bench.cc says of its flags.
struct PlanBenchOptions {
  std::string only, device = "cuda", samples;
  std::vector<int> sections = {0};
  std::optional<plan::Gathered> gathered;
  plan::Transport transport = plan::Transport::kRing;
  int phases = 0;
  std::vector<Op> ops = {Op::kForward, Op::kBackward};
  bool deterministic = true;
  int rounds = 2;
  double settle_seconds = 1, timed_seconds = 2;
  int64_t shrink = 0;  // 0: as suits the device
  // The check of `auto`: which part of its cases, and where JSON goes.
  bool checks_auto = false;
  int part = 1, parts = 1;
  std::string json;
};

// INVALID_ARGUMENT: an argument is none of ours.
absl::StatusOr<PlanBenchOptions> ParseOptions(int argc, char** argv);

// As `device` names them; none where there are no GPUs at all.
// INVALID_ARGUMENT, or an error of theirs.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> FindDevices(
    const std::string& device);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_OPTIONS_H_
