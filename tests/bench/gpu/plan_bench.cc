// Plans of several devices beside one device: how long the same attention takes
// where all share it, and on each of them alone.
//
//   plan_bench [--only=SECTION] [--op=forward|backward] [--deterministic=0|1]
//              [--sections=N,...] [--gathered=rows|columns]
//              [--device=cuda[:0,1]|cpu*N] [--rounds=N] [--settle_ms=N]
//              [--timed_ms=N] [--shrink=N] [--samples=FILE]
//
// Sections: causal, full, window, gqa (plan gather), and heads, ring, striped,
// zigzag (those plans).
// --only: those with SECTION in their names. --sections: in how many sections
// of heads gather fetches, one row each; 0: as it finds best. --gathered: what
// its backward fetches. --deterministic: of backward, on both sides. --device:
// cpu*N are N devices of this processor's threads, which check the plans and
// this program; lengths are then a 512th unless --shrink says otherwise.
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
// Ends with a table of the bars and a line of JSON; fails where results are
// wrong, not where a bar is missed. Where there are not two devices it says so
// and succeeds.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/plan/cost.h"
#include "tests/bench/clock.h"
#include "tests/bench/gpu/plan/cases.h"
#include "tests/bench/gpu/plan/host_tensors.h"
#include "tests/bench/gpu/plan/options.h"
#include "tests/bench/gpu/plan/plan_side.h"
#include "tests/bench/gpu/plan/report.h"
#include "tests/bench/gpu/plan/samples.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kMostDifference = 1.0 / 64;  // of vectors
constexpr double kMostLseDifference = 1e-4;
// Runs of a side before those that are timed, at least.
constexpr int kSettling = 3;

using Devices = std::vector<std::unique_ptr<Backend>>;

// One side of a case, and what was seen of it.
struct Side {
  std::optional<Wanted> wanted;  // none: one device alone
  std::unique_ptr<PlanSide> run;
  std::vector<double> seconds = {}, enqueue_seconds = {};
  std::vector<uint64_t> bits = {};  // of the first run's results
  bool is_right = true;
  std::string check = {};
};

struct Result {
  const char* name;
  const std::byte* reference;
  std::byte* got;
  int64_t bytes;
};

class Bench {
 public:
  Bench(const PlanBenchOptions& options, Devices devices)
      : options_(options),
        devices_(std::move(devices)),
        crew_(static_cast<int>(devices_.size())),
        cases_(Cases(options.only, options.shrink)),
        samples_(options.samples) {
    int64_t elements = 0, rows = 0;
    for (const Case& one : cases_) {
      elements = std::max(elements, one.shape.elements());
      rows = std::max(rows, one.shape.rows());
    }
    tensors_ = std::make_unique<HostTensors>(devices_.front()->host_memory(),
                                             elements, rows);
  }

  void Run() {
    PlanTable::PrintHead();
    for (const Case& one : cases_) {
      const bool times_forward = options_.ops.front() == Op::kForward;
      if (!times_forward) FindOutputs(one.shape);
      for (Op op : options_.ops) RunCase(one, op);
    }
  }

  // Whether all results were right.
  bool Finish() const {
    return report_.Finish(
        absl::StrCat(devices_.size(), " x ", devices_.front()->device().name),
        options_.deterministic);
  }

 private:
  std::unique_ptr<PlanSide> NewSide(const Shape& shape, Op op, PlanKind kind,
                                    int sections,
                                    const std::vector<Backend*>& on,
                                    const Outputs& outputs) {
    return std::make_unique<PlanSide>(
        PlanSide::What{shape, op, kind, sections, options_.gathered,
                       options_.deterministic},
        on, *tensors_, outputs, crew_);
  }

  std::unique_ptr<PlanSide> Alone(const Shape& shape, Op op, int device) {
    return NewSide(shape, op, PlanKind::kHeads, 0, {devices_[device].get()},
                   device == 0 ? tensors_->reference() : tensors_->got());
  }

  // O and LSE for a backward whose forward is not timed.
  void FindOutputs(const Shape& shape) {
    const auto forward = Alone(shape, Op::kForward, 0);
    forward->Run();
    forward->Store();
  }

  std::vector<Side> Sides(const Case& one, Op op) {
    std::vector<Side> sides;
    std::vector<Backend*> all;
    for (size_t i = 0; i < devices_.size(); ++i) {
      all.push_back(devices_[i].get());
      sides.push_back(
          {std::nullopt, Alone(one.shape, op, static_cast<int>(i))});
    }
    for (const Wanted& wanted : one.wanted) {
      const bool has_sections = wanted.kind == PlanKind::kGather;
      for (int sections :
           has_sections ? options_.sections : std::vector<int>{0}) {
        sides.push_back({wanted, NewSide(one.shape, op, wanted.kind, sections,
                                         all, tensors_->got())});
      }
    }
    return sides;
  }

  void RunCase(const Case& one, Op op) {
    std::vector<Side> sides = Sides(one, op);
    for (Side& side : sides) Check(side, &side == &sides.front());
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < sides.size(); ++i) {
        Measure(sides[round % 2 == 0 ? i : sides.size() - 1 - i]);
      }
    }
    for (Side& side : sides) CheckAgain(side, &side == &sides.front());
    for (const Side& side : sides) {
      if (side.wanted.has_value()) report_.Add(RowOf(side, sides));
    }
  }

  std::vector<Result> Results(const PlanSide& run) const {
    const Shape& shape = run.what().shape;
    const Outputs &reference = tensors_->reference(), &got = tensors_->got();
    const int64_t bytes = 2 * shape.elements();
    if (run.what().op == Op::kForward) {
      return {{"o", reference.o, got.o, bytes},
              {"lse", reference.lse, got.lse, 4 * shape.rows()}};
    }
    const int64_t kv_bytes = bytes / shape.q_heads * shape.kv_heads;
    return {{"dq", reference.dq, got.dq, bytes},
            {"dk", reference.dk, got.dk, kv_bytes},
            {"dv", reference.dv, got.dv, kv_bytes}};
  }

  std::vector<uint64_t> Fingerprints(const PlanSide& run,
                                     bool is_reference) const {
    std::vector<uint64_t> bits;
    for (const Result& result : Results(run)) {
      bits.push_back(Fingerprint(is_reference ? result.reference : result.got,
                                 result.bytes));
    }
    return bits;
  }

  void Store(PlanSide& run, bool is_reference) {
    if (!is_reference) {
      for (const Result& result : Results(run)) {
        FillWithNan(result.got, result.bytes);
      }
    }
    run.Store();
  }

  // Of the first run: against the first device alone, which is the reference.
  void Check(Side& side, bool is_reference) {
    side.run->Run();
    Store(*side.run, is_reference);
    side.bits = Fingerprints(*side.run, is_reference);
    const bool same_bits = side.run->what().op == Op::kForward &&
                           (!side.wanted.has_value() ||
                            plan::HasOneDevicesBits(side.wanted->kind));
    for (const Result& result : Results(*side.run)) {
      // What is NaN in the reference is found so: nothing is near it.
      const std::byte* got = is_reference ? result.reference : result.got;
      const bool same = AreEqual(got, result.reference, result.bytes);
      const bool is_float = std::strcmp(result.name, "lse") == 0;
      const double difference =
          is_float
              ? LargestFloatDifference(got, result.reference, result.bytes / 4)
              : LargestDifference(got, result.reference, result.bytes / 2,
                                  side.run->what().shape.dim);
      side.is_right &= same_bits ? same && difference == 0
                                 : difference <= (is_float ? kMostLseDifference
                                                           : kMostDifference);
      absl::StrAppend(
          &side.check, side.check.empty() ? "" : ", ", result.name,
          same ? " same bits" : absl::StrFormat(" %.1e", difference));
    }
  }

  // Of the last.
  void CheckAgain(Side& side, bool is_reference) {
    Store(*side.run, is_reference);
    const bool same = Fingerprints(*side.run, is_reference) == side.bits;
    absl::StrAppend(&side.check,
                    same ? "; again the same" : "; other bits again");
    if (side.run->what().op == Op::kForward || options_.deterministic) {
      side.is_right &= same;
    }
  }

  void Measure(Side& side) {
    const double begin = Seconds();
    for (int runs = 0;
         runs < kSettling || Seconds() < begin + options_.settle_seconds;
         ++runs) {
      side.run->Run();
    }
    const double settled = Seconds();
    do {
      const PlanSide::Times times = side.run->Run();
      side.seconds.push_back(times.seconds);
      side.enqueue_seconds.push_back(times.enqueue_seconds);
      samples_.Add(side.run->what(),
                   side.wanted.has_value() ? PlanName(side.wanted->kind)
                                           : PlanName(PlanKind::kOneDevice),
                   times);
    } while (Seconds() < settled + options_.timed_seconds);
  }

  PlanRow RowOf(const Side& side, const std::vector<Side>& sides) const {
    const PlanSide& run = *side.run;
    PlanRow row;
    row.shape = run.what().shape;
    row.op = run.what().op;
    row.wanted = *side.wanted;
    row.devices = static_cast<int>(devices_.size());
    row.sections = run.plan().sections;
    row.flops = run.flops();
    row.seconds = Median(side.seconds);
    row.enqueue_seconds = Median(side.enqueue_seconds);
    row.is_right = side.is_right;
    row.check = side.check;
    for (const Side& other : sides) {
      if (other.wanted.has_value()) continue;
      row.base_seconds.push_back(Median(other.seconds));
      if (other.is_right) continue;
      row.is_right = false;
      absl::StrAppend(&row.check, "; a device alone: ", other.check);
    }
    row.predicted_seconds =
        absl::ToDoubleSeconds(run.Predict(row.flops / row.base()));
    row.pulled_bytes = run.pulled_bytes();
    row.pulls = run.pulls();
    row.planned_bytes = run.planned_bytes();
    return row;
  }

  const PlanBenchOptions options_;
  const Devices devices_;
  Crew crew_;
  const std::vector<Case> cases_;
  std::unique_ptr<HostTensors> tensors_;
  SampleFile samples_;
  PlanTable report_;
};

int Run(PlanBenchOptions options) {
  Devices devices = Get(FindDevices(options.device));
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
