#ifndef ATTND_TESTS_BENCH_GPU_PLAN_REPORT_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/gpu/plan/cases.h"

namespace attnd::bench {

// One plan beside one device, for one case.
struct PlanRow {
  Shape shape;
  Op op = Op::kForward;
  Wanted wanted;
  int devices = 0;
  int sections = 0;  // as the plan has them
  double flops = 0;
  double seconds = 0, enqueue_seconds = 0;
  std::vector<double> base_seconds;  // of each device alone
  double predicted_seconds = 0;
  int64_t pulled_bytes = 0, pulls = 0, planned_bytes = 0;  // of all devices
  bool is_right = true;
  std::string check;  // what was compared

  // Of the slowest device.
  double base() const;
  // Of what all devices would do if each were as fast as one is alone.
  double percent() const;
  double tflops() const;  // of one device
};

// Prints rows as they come, and at the end all of them as JSON, and which bars
// they hold: a plan that was run with several numbers of sections is judged by
// the best of them.
class PlanTable {
 public:
  static void PrintHead();
  void Add(PlanRow row);
  // Whether all rows were right.
  bool Finish(const std::string& device, bool deterministic) const;

 private:
  void PrintJson(const std::string& device, bool deterministic) const;
  void PrintBars() const;

  std::vector<PlanRow> rows_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_REPORT_H_
