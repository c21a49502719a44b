#include "tests/bench/gpu/plan/check.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/plan/make_plan.h"
#include "tests/bench/clock.h"
#include "tests/bench/gpu/plan/check_cases.h"
#include "tests/bench/gpu/plan/check_report.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kFarPredicted = 3, kFarMeasured = 1.3;
constexpr int kSettling = 2, kLeastTimed = 5;
// How often, at most, the cases that miss a bar are run again.
constexpr int kAgain = 3;

// What is estimated of a case but for its turns, in seconds: plans and memory,
// and its results found and compared at so many bytes a second.
constexpr double kOfCase = 0.4, kComparedPerSecond = 15e9;
constexpr int kUsualSides = 6, kUsualCloseSides = 3;

// One side of a case as it is run.
struct Turned {
  Side side;
  bool is_forced = false, is_auto = false;
  double predicted_seconds = 0;
  bool is_run = true;    // at all
  bool is_close = true;  // to the quickest one, by what was measured
};

// What it does, whoever wanted it.
std::string TextOf(const PlanSide& side) {
  plan::Plan plan = side.plan();
  plan.why.clear();
  return plan::Explain(side.request(), plan);
}

class Check {
 public:
  Check(const PlanBenchOptions& options, Rig::Devices devices,
        std::vector<CheckCase> cases)
      : options_(options),
        cases_(std::move(cases)),
        rig_(options, std::move(devices), Largest(cases_)),
        report_(absl::StrCat(rig_.devices(), " x ", rig_.device().name),
                options.deterministic, options.json) {}

  bool Run() {
    std::printf("# %d cases, which should take %.0f s\n",
                static_cast<int>(cases_.size()), EstimatedSeconds());
    CheckReport::PrintHead();
    for (const CheckCase& one : cases_) report_.Add(RunCase(one));
    for (int again = 0; again < kAgain; ++again) {
      const std::vector<CheckCase> missing = report_.Missing();
      if (missing.empty()) break;
      std::printf("# again, as they miss a bar: %d\n",
                  static_cast<int>(missing.size()));
      for (const CheckCase& one : missing) report_.AddAgain(RunCase(one));
    }
    const bool held = report_.Finish();
    const bool is_judged = rig_.device().kind != "cpu";
    if (!is_judged) std::printf("# on CPUs no time is judged\n");
    return report_.AreAllRight() && (held || !is_judged);
  }

 private:
  static TensorSizes Largest(const std::vector<CheckCase>& cases) {
    TensorSizes most;
    for (const CheckCase& one : cases) {
      const TensorSizes sizes = one.sizes();
      most.q = std::max(most.q, sizes.q);
      most.kv = std::max(most.kv, sizes.kv);
      most.d_q = std::max(most.d_q, sizes.d_q);
      most.d_kv = std::max(most.d_kv, sizes.d_kv);
      most.rows = std::max(most.rows, sizes.rows);
    }
    return most;
  }

  PlanSide::Turn turn() const {
    return {options_.settle_seconds, options_.timed_seconds, kSettling,
            (kLeastTimed + options_.rounds - 1) / options_.rounds};
  }

  double EstimatedSeconds() const {
    double seconds = 0;
    for (const CheckCase& one : cases_) {
      const double of_turn =
          std::max(options_.settle_seconds, kSettling * one.alone_seconds) +
          std::max(options_.timed_seconds, turn().timed * one.alone_seconds);
      const int turns = kUsualSides + (options_.rounds - 1) * kUsualCloseSides;
      seconds += turns * of_turn + kOfCase +
                 kUsualSides * static_cast<double>(one.sizes().bytes()) /
                     kComparedPerSecond;
    }
    return seconds;
  }

  CheckRow RunCase(const CheckCase& one) {
    if (one.op == Op::kBackward) rig_.FindOutputs(one.shape);
    std::vector<Turned> sides = Sides(one);
    for (Turned& side : sides) {
      if (side.is_run) rig_.Check(side.side);
    }
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < sides.size(); ++i) {
        Turned& side = sides[round % 2 == 0 ? i : sides.size() - 1 - i];
        if (side.is_run && side.is_close) rig_.Measure(side.side, turn());
      }
      FindClose(sides);
    }
    CheckRow row{one, {}};
    for (const Turned& side : sides) row.sides.push_back(Seen(side));
    return row;
  }

  // One device first.
  std::vector<Turned> Sides(const CheckCase& one) {
    PlanSide::What what;
    what.shape = one.shape;
    what.op = one.op;
    what.deterministic = options_.deterministic;
    what.inputs = one.inputs;
    std::vector<Turned> sides;
    sides.push_back({rig_.Alone(what, 0)});
    for (const PlanKind kind : kForcedKinds) {
      what.kind = kind;
      Side side = rig_.Shared(what);
      if (side.kind != kind) continue;  // there is no such plan
      sides.push_back({std::move(side), /*is_forced=*/true});
    }
    what.kind = PlanKind::kAuto;
    AddAuto(rig_.Shared(what), sides);
    FindPredicted(sides);
    return sides;
  }

  static void AddAuto(Side chosen, std::vector<Turned>& sides) {
    const std::string text = TextOf(*chosen.run);
    for (Turned& side : sides) {
      if (!side.is_forced || side.side.kind != chosen.kind ||
          TextOf(*side.side.run) != text) {
        continue;
      }
      side.is_auto = true;
      return;
    }
    sides.push_back({std::move(chosen), /*is_forced=*/false, /*is_auto=*/true});
  }

  static void FindPredicted(std::vector<Turned>& sides) {
    double least = std::numeric_limits<double>::infinity();
    for (Turned& side : sides) {
      side.predicted_seconds = absl::ToDoubleSeconds(side.side.run->Predict());
      if (side.is_forced) least = std::min(least, side.predicted_seconds);
    }
    for (Turned& side : sides) {
      side.is_run = !side.is_forced || side.is_auto ||
                    side.predicted_seconds <= kFarPredicted * least;
    }
  }

  static void FindClose(std::vector<Turned>& sides) {
    double least = std::numeric_limits<double>::infinity();
    for (const Turned& side : sides) {
      if (!side.is_run || side.side.kind == PlanKind::kOneDevice) continue;
      least = std::min(least, Median(side.side.seconds));
    }
    for (Turned& side : sides) {
      side.is_close =
          side.is_auto ||
          (side.is_run && Median(side.side.seconds) <= kFarMeasured * least);
    }
  }

  static CheckSide Seen(const Turned& turned) {
    const PlanSide& run = *turned.side.run;
    CheckSide seen;
    seen.kind = turned.side.kind;
    seen.is_forced = turned.is_forced;
    seen.is_auto = turned.is_auto;
    seen.predicted_seconds = turned.predicted_seconds;
    seen.why = run.plan().why;
    seen.flops = run.flops();
    seen.sections = run.plan().sections;
    seen.steps = static_cast<int64_t>(run.plan().steps.size());
    if (!turned.is_run) return seen;
    seen.seconds = turned.side.seconds;
    seen.enqueue_seconds = turned.side.enqueue_seconds;
    seen.kernel_seconds = turned.side.kernel_seconds;
    seen.pulls = run.pulls();
    seen.pulled_bytes = run.pulled_bytes();
    seen.is_right = turned.side.is_right;
    seen.check = turned.side.check;
    return seen;
  }

  const PlanBenchOptions options_;
  const std::vector<CheckCase> cases_;
  Rig rig_;
  CheckReport report_;
};

// Of the options' operations and part: every N-th, so that parts take as long.
std::vector<CheckCase> PartOf(const PlanBenchOptions& options) {
  std::vector<CheckCase> cases = CheckCases(options.only, options.shrink);
  std::erase_if(cases, [&](const CheckCase& one) {
    return one.number % options.parts != options.part % options.parts ||
           std::find(options.ops.begin(), options.ops.end(), one.op) ==
               options.ops.end();
  });
  return cases;
}

}  // namespace

bool CheckAuto(const PlanBenchOptions& options, Rig::Devices devices) {
  const double start = Seconds();
  Check check(options, std::move(devices), PartOf(options));
  std::printf("# inputs took %.1f s\n", Seconds() - start);
  const bool held = check.Run();
  std::printf("# all took %.1f s\n", Seconds() - start);
  return held;
}

}  // namespace attnd::bench
