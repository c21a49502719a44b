#ifndef ATTND_TESTS_BENCH_GPU_PLAN_SAMPLES_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_SAMPLES_H_

#include <fstream>
#include <string>

#include "absl/strings/string_view.h"
#include "tests/bench/gpu/plan/plan_side.h"

namespace attnd::bench {

// A file with a line of CSV for every timed run, from which one sees whether
// a median hides two kinds of runs, and which device was the slower one:
//
//   when it ended, in seconds of Unix time; shape, op and plan; how long it
//   took; how long each device's kernels took, all in milliseconds.
class SampleFile {
 public:
  // None is written if there is no name. A file that cannot be written ends the
  // process.
  explicit SampleFile(const std::string& name);

  // `plan` is what the run's row is called.
  void Add(const PlanSide::What& what, absl::string_view plan,
           const PlanSide::Times& times);

 private:
  std::ofstream file_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_SAMPLES_H_
