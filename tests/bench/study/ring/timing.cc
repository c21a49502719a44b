#include "tests/bench/study/ring/timing.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/team/crew.h"
#include "tests/bench/gpu/plan/host_tensors.h"
#include "tests/bench/gpu/plan/plan_side.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kMostDifference = 1.0 / 64;

struct Side {
  PlanKind kind;
  std::unique_ptr<PlanSide> run;
  std::vector<double> seconds = {};
  std::vector<std::vector<double>> kernel_seconds = {};  // by device
  double difference = 0;                                 // from one device's
};

class Timing {
 public:
  Timing(const RingStudyOptions& options, const Devices& devices)
      : options_(options),
        devices_(devices),
        crew_(static_cast<int>(devices.size())) {
    const Shape most = options.shape(
        *std::max_element(options.lens.begin(), options.lens.end()));
    tensors_ = std::make_unique<HostTensors>(devices.front()->host_memory(),
                                             most.elements(), most.rows());
    for (const auto& device : devices) all_.push_back(device.get());
  }

  void Run() {
    for (const int len : options_.lens) {
      const Shape shape = options_.shape(len);
      ComputeAlone(shape, Op::kForward);
      for (const Op op : options_.ops) {
        if (op == Op::kBackward) ComputeAlone(shape, op);
        RunSides(shape, op);
      }
    }
  }

 private:
  std::unique_ptr<PlanSide> NewSide(const Shape& shape, Op op, PlanKind kind,
                                    const Outputs& outputs) {
    const bool alone = kind == PlanKind::kOneDevice;
    const PlanSide::What what = {
        .shape = shape,
        .op = op,
        .kind = alone ? PlanKind::kHeads : kind,
        .sections = kind == PlanKind::kGather ? options_.sections : 0};
    return std::make_unique<PlanSide>(
        what, alone ? std::vector<Backend*>{all_.front()} : all_, *tensors_,
        outputs, crew_);
  }

  void ComputeAlone(const Shape& shape, Op op) {
    const auto alone =
        NewSide(shape, op, PlanKind::kOneDevice, tensors_->reference());
    alone->Run();
    alone->Store();
  }

  void RunSides(const Shape& shape, Op op) {
    std::vector<Side> sides;
    for (const PlanKind kind : options_.plans) {
      sides.push_back({kind, NewSide(shape, op, kind, tensors_->got())});
      Check(sides.back());
    }
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < sides.size(); ++i) {
        Measure(sides[round % 2 == 0 ? i : sides.size() - 1 - i]);
      }
    }
    for (const Side& side : sides) Print(shape, op, side);
  }

  void Check(Side& side) {
    const Shape& shape = side.run->what().shape;
    const Outputs &got = tensors_->got(), &reference = tensors_->reference();
    std::vector<std::pair<std::byte*, const std::byte*>> results = {
        {got.o, reference.o}};
    if (side.run->what().op == Op::kBackward) {
      results = {{got.dq, reference.dq},
                 {got.dk, reference.dk},
                 {got.dv, reference.dv}};
    }
    for (const auto& [result, known] : results) {
      FillWithNan(result, 2 * shape.elements());
    }
    side.run->Run();
    side.run->Store();
    for (const auto& [result, known] : results) {
      side.difference = std::max(
          side.difference,
          LargestDifference(result, known, shape.elements(), shape.dim));
    }
  }

  void Measure(Side& side) {
    const PlanSide::Turn turn = {options_.settle_seconds,
                                 options_.timed_seconds};
    side.run->RunFor(turn, [&](const PlanSide::Times& times) {
      side.seconds.push_back(times.seconds);
      side.kernel_seconds.resize(times.kernel_seconds.size());
      for (size_t i = 0; i < times.kernel_seconds.size(); ++i) {
        side.kernel_seconds[i].push_back(times.kernel_seconds[i]);
      }
    });
  }

  void Print(const Shape& shape, Op op, const Side& side) const {
    std::vector<std::string> kernels;
    for (const std::vector<double>& seconds : side.kernel_seconds) {
      kernels.push_back(absl::StrFormat("%.4f", 1e3 * Median(seconds)));
    }
    const plan::Plan& plan = side.run->plan();
    const bool alone = side.kind == PlanKind::kOneDevice;
    absl::PrintF(
        "{\"plan\": \"%s\", \"ran_as\": \"%s\", \"op\": \"%s\", "
        "\"devices\": %d, \"device\": \"%s\", \"batch\": %d, \"len\": %d, "
        "\"heads\": %d, \"dim\": %d, \"causal\": %s, \"sections\": %d, "
        "\"ms\": %.4f, \"kernel_ms\": [%s], \"runs\": %d, \"flops\": %.0f, "
        "\"pulled_bytes\": %d, \"planned_pulls\": %d, \"planned_bytes\": [%s], "
        "\"allocated_bytes\": [%s], \"right\": %s, \"difference\": %.3g}\n",
        PlanName(side.kind), PlanName(alone ? side.kind : plan.kind),
        OpName(op), plan.devices, devices_.front()->device().name, shape.batch,
        shape.len, shape.q_heads, shape.dim, shape.causal ? "true" : "false",
        plan.sections, 1e3 * Median(side.seconds), absl::StrJoin(kernels, ", "),
        side.seconds.size(), side.run->flops(), side.run->pulled_bytes(),
        side.run->planned_bytes(),
        absl::StrJoin(plan.cost.devices, ", ",
                      [](std::string* out, const plan::PlanCost::Device& cost) {
                        absl::StrAppend(out, cost.memory_bytes);
                      }),
        absl::StrJoin(side.run->allocated_bytes(), ", "),
        // JSON knows nothing infinite.
        side.difference <= kMostDifference ? "true" : "false",
        std::min(side.difference, 1e9));
    std::fflush(stdout);
  }

  const RingStudyOptions& options_;
  const Devices& devices_;
  std::vector<Backend*> all_;
  Crew crew_;
  std::unique_ptr<HostTensors> tensors_;
};

}  // namespace

void PrintTimes(const RingStudyOptions& options, const Devices& devices) {
  Timing(options, devices).Run();
}

}  // namespace attnd::bench
