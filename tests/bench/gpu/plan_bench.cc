// Plans of several devices beside one device: how long the same attention takes
// where all share it, and on each of them alone.
//
//   plan_bench [--only=SECTION] [--op=forward|backward] [--deterministic=0|1]
//              [--sections=N,...] [--gathered=rows|columns]
//              [--transport=ring|pull] [--phases=N]
//              [--device=cuda[:0,1]|cpu*N] [--rounds=N] [--settle_ms=N]
//              [--timed_ms=N] [--shrink=N] [--samples=FILE]
//   plan_bench --check [--part=I/N] [--json=FILE] [as above]
//
// Sections: causal, full, window, gqa (plan gather), and heads, ring, striped,
// zigzag (those plans).
// --only: those with SECTION in their names. --sections: in how many sections
// of heads gather fetches, one row each; 0: as it finds best. --gathered: what
// its backward fetches. --transport: how columns come in ring, striped and
// zigzag. --phases: of pull, in how many launches a device computes over all of
// them; 0: as the plan finds best. --deterministic: of backward, on both sides.
// --device: cpu*N are N devices of this processor's threads, which check the
// plans and this program; lengths are then a 512th unless --shrink says
// otherwise.
// --samples: a file for every timed run (plan/samples.h).
//
// Inputs lie where the plan wants them before a run begins; it is over when
// every device is idle. Sides take turns, in each of --rounds rounds, every
// other time in reverse, and a side runs for --settle_ms by itself before it is
// timed for --timed_ms; times are medians. A GPU at its limit of power needs
// that: it begins faster than it goes on, and then its clock swings, an H100's
// by a tenth, about once a second, and two GPUs' not together. Percent is the
// slowest device's time alone, in parts of all devices' time together. Before
// every run whatever it computes or fetches is made NaN. Forward must give the
// first device's bits, but where columns go round; each vector of O and of a
// gradient may differ from its by a 64th, as LargestDifference has it, and LSE
// by 1e-4. And forward, and backward with --deterministic=1, must give the same
// bits in the first run and in the last.
//
// --check asks instead whether `auto` takes the quickest plan, and whether
// plans take as long as predicted (plan/check.h). A side is then settled for
// 100 ms and timed for 150 unless flags say otherwise, --only looks at the
// names of its cases, and --part=I/N takes every N-th of these.
//
// Else it ends with a table of the bars and a line of JSON; fails where results
// are wrong, not where a bar is missed. Where there are not two devices it says
// so and succeeds.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/clock.h"
#include "tests/bench/gpu/plan/cases.h"
#include "tests/bench/gpu/plan/check.h"
#include "tests/bench/gpu/plan/options.h"
#include "tests/bench/gpu/plan/report.h"
#include "tests/bench/gpu/plan/rig.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

class Bench {
 public:
  Bench(const PlanBenchOptions& options, Rig::Devices devices)
      : options_(options),
        cases_(Cases(options.only, options.shrink)),
        rig_(options, std::move(devices), Largest(cases_)) {}

  void Run() {
    PlanTable::PrintHead();
    for (const Case& one : cases_) {
      const bool times_forward = options_.ops.front() == Op::kForward;
      if (!times_forward) rig_.FindOutputs(one.shape);
      for (Op op : options_.ops) RunCase(one, op);
    }
  }

  // Whether all results were right.
  bool Finish() const {
    return report_.Finish(
        absl::StrCat(rig_.devices(), " x ", rig_.device().name),
        options_.deterministic);
  }

 private:
  struct WantedSide {
    std::optional<Wanted> wanted;  // none: one device alone
    Side side;
  };

  static TensorSizes Largest(const std::vector<Case>& cases) {
    int64_t elements = 0, rows = 0;
    for (const Case& one : cases) {
      elements = std::max(elements, one.shape.elements());
      rows = std::max(rows, one.shape.rows());
    }
    return {elements, elements, elements, elements, rows};
  }

  std::vector<WantedSide> Sides(const Case& one, Op op) {
    PlanSide::What what;
    what.shape = one.shape;
    what.op = op;
    what.gathered = options_.gathered;
    what.transport = options_.transport;
    what.phases = options_.phases;
    what.deterministic = options_.deterministic;
    std::vector<WantedSide> sides;
    for (int device = 0; device < rig_.devices(); ++device) {
      sides.push_back({std::nullopt, rig_.Alone(what, device)});
    }
    for (const Wanted& wanted : one.wanted) {
      what.kind = wanted.kind;
      const bool has_sections = wanted.kind == PlanKind::kGather;
      for (int sections :
           has_sections ? options_.sections : std::vector<int>{0}) {
        what.sections = sections;
        sides.push_back({wanted, rig_.Shared(what)});
      }
    }
    return sides;
  }

  void RunCase(const Case& one, Op op) {
    std::vector<WantedSide> sides = Sides(one, op);
    for (WantedSide& side : sides) rig_.Check(side.side);
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < sides.size(); ++i) {
        rig_.Measure(sides[round % 2 == 0 ? i : sides.size() - 1 - i].side,
                     {options_.settle_seconds, options_.timed_seconds});
      }
    }
    for (WantedSide& side : sides) rig_.CheckAgain(side.side);
    for (const WantedSide& side : sides) {
      if (side.wanted.has_value()) report_.Add(RowOf(side, sides));
    }
  }

  PlanRow RowOf(const WantedSide& wanted,
                const std::vector<WantedSide>& sides) const {
    const Side& side = wanted.side;
    const PlanSide& run = *side.run;
    PlanRow row;
    row.shape = run.what().shape;
    row.op = run.what().op;
    row.wanted = *wanted.wanted;
    row.devices = rig_.devices();
    row.sections = run.plan().sections;
    row.flops = run.flops();
    row.seconds = Median(side.seconds);
    row.enqueue_seconds = Median(side.enqueue_seconds);
    row.is_right = side.is_right;
    row.check = side.check;
    for (const WantedSide& other : sides) {
      if (other.wanted.has_value()) continue;
      row.base_seconds.push_back(Median(other.side.seconds));
      if (other.side.is_right) continue;
      row.is_right = false;
      absl::StrAppend(&row.check, "; a device alone: ", other.side.check);
    }
    row.predicted_seconds = absl::ToDoubleSeconds(run.Predict());
    row.pulled_bytes = run.pulled_bytes();
    row.pulls = run.pulls();
    row.planned_bytes = run.planned_bytes();
    return row;
  }

  const PlanBenchOptions options_;
  const std::vector<Case> cases_;
  Rig rig_;
  PlanTable report_;
};

int Run(PlanBenchOptions options) {
  Rig::Devices devices = Get(FindDevices(options.device));
  if (devices.size() < 2) {
    std::printf("skipped: this takes two devices, and there are %d\n",
                static_cast<int>(devices.size()));
    return 0;
  }
  for (const auto& device : devices) {
    std::printf("# %s:%d %s\n", device->device().kind.c_str(),
                device->device().index, device->device().name.c_str());
  }
  if (options.shrink == 0) {
    options.shrink = devices.front()->device().kind == "cpu" ? 512 : 1;
  }
  if (options.checks_auto)
    return CheckAuto(options, std::move(devices)) ? 0 : 1;
  const double start = Seconds();
  Bench bench(options, std::move(devices));
  std::printf("# inputs took %.1f s\n", Seconds() - start);
  bench.Run();
  std::printf("# all took %.1f s\n", Seconds() - start);
  return bench.Finish() ? 0 : 1;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  return attnd::bench::Run(
      attnd::bench::Get(attnd::bench::ParseOptions(argc, argv)));
}
