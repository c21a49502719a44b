#ifndef ATTND_TESTS_BENCH_GPU_PLAN_CHECK_REPORT_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_CHECK_REPORT_H_

#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/plan_kind.h"
#include "tests/bench/gpu/plan/check_cases.h"

namespace attnd::bench {

inline constexpr std::array kForcedKinds = {
    PlanKind::kHeads,   PlanKind::kGather, PlanKind::kRing,
    PlanKind::kStriped, PlanKind::kZigzag, PlanKind::kKv};

// One side of a case of the check.
struct CheckSide {
  PlanKind kind = PlanKind::kOneDevice;  // that: a device alone
  bool is_forced = false;  // and not one device, or a plan that auto alone has
  bool is_auto = false;    // the plan that auto has made
  double predicted_seconds = 0;
  std::string why = {};  // the plan's own words
  // Of timed runs; none: it was not run.
  std::vector<double> seconds = {}, enqueue_seconds = {};
  std::vector<std::vector<double>> kernel_seconds = {};  // by run, by device
  double flops = 0;
  int sections = 0;
  int64_t steps = 0, pulls = 0, pulled_bytes = 0;
  bool is_right = true;
  std::string check = {};

  bool was_run() const { return !seconds.empty(); }
  double median() const;
  double predicted_part() const { return predicted_seconds / median(); }
  // More runs of the same side.
  void Join(const CheckSide& more);
};

struct CheckRow {
  CheckCase one;
  std::vector<CheckSide> sides;  // one device first

  const CheckSide& alone() const { return sides.front(); }
  const CheckSide& chosen() const;  // by auto
  // Of the kinds that were run; and the next one.
  const CheckSide& quickest() const;
  const CheckSide* second() const;
  const CheckSide* Find(PlanKind kind) const;
  double regret() const;
  // Whether the regret is over the bar, where it counts.
  bool has_regret() const;
  // Whether that is so, or what was predicted of a side that counts is outside.
  bool misses() const;
  bool is_right() const;
  // More runs of the same case.
  void Join(const CheckRow& more);
};

// Prints rows as they come, and then what they say:
//
//   the largest regret, at most 1.05 where the quickest kind takes a
//   millisecond or more: below that one run of this program has another winner
//   than the next; each kind's time as predicted in parts of what it was: from
//   0.8 to 1.25 where a run takes a millisecond or more and at most 1.5 times
//   the quickest; how often each kind was the quickest: a win is by more than 2
//   %, or by so much that no run of another was as quick as its median, and at
//   least three kinds have one; how often the kind that auto chose was quicker
//   than one device.
class CheckReport {
 public:
  // `devices` is what JSON calls them. JSON goes to the file `json` as rows
  // come, so that of a run that ends early there are some, or is printed at the
  // end. A case that was run again has its last line there. A file that cannot
  // be written ends the process.
  CheckReport(std::string devices, bool deterministic, const std::string& json);

  static void PrintHead();
  void Add(CheckRow row);
  // Of a case that was added: its runs count as those before them do.
  void AddAgain(const CheckRow& more);
  // The cases that miss a bar so far.
  std::vector<CheckCase> Missing() const;
  // Whether all bars of time held.
  bool Finish() const;
  bool AreAllRight() const;

 private:
  void Show(const CheckRow& row);
  bool PrintRegret() const;
  bool PrintPredicted() const;
  bool PrintWins() const;
  void PrintAlone() const;
  std::string Json(const CheckRow& row) const;

  const std::string devices_;
  const bool deterministic_;
  std::ofstream file_;
  std::vector<CheckRow> rows_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_CHECK_REPORT_H_
