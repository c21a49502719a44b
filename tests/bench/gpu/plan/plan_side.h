#ifndef ATTND_TESTS_BENCH_GPU_PLAN_PLAN_SIDE_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_PLAN_SIDE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"
#include "kernels/plan/predict.h"
#include "kernels/team/crew.h"
#include "kernels/team/host_tensors.h"
#include "kernels/team/plan_run.h"
#include "tests/bench/gpu/plan/cases.h"
#include "tests/bench/gpu/plan/host_tensors.h"
#include "tests/bench/gpu/plan/replay_member.h"

namespace attnd::bench {

// One plan for one problem on some devices, to be run as often as one likes.
// Its inputs lie on the devices all the while; or in the host's memory, and
// then a run brings them, and its results back. Whatever fails ends the
// process.
class PlanSide {
 public:
  struct What {
    Shape shape;
    Op op = Op::kForward;
    PlanKind kind = PlanKind::kHeads;
    int sections = 0;  // as PlanRequest has them
    std::optional<plan::Gathered> gathered = {};
    bool deterministic = true;
    plan::InputsLie inputs = plan::InputsLie::kWherePlanned;
    std::optional<DeviceRates> rates = {};  // none: the devices' own
    plan::Transport transport = plan::Transport::kRing;
    int phases = 0;
  };
  struct Times {
    double seconds = 0;          // from before the first call until all is over
    double enqueue_seconds = 0;  // until everything has been enqueued
    std::vector<double> kernel_seconds;  // of each device, by its own clock
  };

  // Makes the plan; the first run takes memory and uploads. Backward reads the
  // reference's O and LSE. `devices`, `tensors` and `crew`, which is no smaller
  // than they are many, outlive it.
  PlanSide(const What& what, const std::vector<Backend*>& devices,
           const HostTensors& tensors, const Outputs& outputs, Crew& crew);
  PlanSide(const PlanSide&) = delete;
  PlanSide& operator=(const PlanSide&) = delete;

  // Everything but uploads and downloads; with inputs on the host, these too.
  // Nothing that an earlier run has computed or fetched is there.
  Times Run();
  // How long it runs by itself, and then is timed, and how often at least.
  struct Turn {
    double settle_seconds = 0, timed_seconds = 0;
    int settling = 3, timed = 1;
  };
  // Runs for a turn, and says of each timed run what it took.
  void RunFor(const Turn& turn,
              absl::FunctionRef<void(const Times& times)> take);
  // Downloads what the last run has computed and left on the devices, and
  // writes what lies past sequences' lengths.
  void Store();

  const What& what() const { return what_; }
  // What a run should take.
  absl::Duration Predict() const { return plan::Predict(request_, plan_); }
  const plan::PlanRequest& request() const { return request_; }
  const plan::Plan& plan() const { return plan_; }
  double flops() const;
  // Of the last run, on all devices: bytes of the copies that it enqueued.
  int64_t pulled_bytes() const;
  int64_t pulls() const;
  // As the plan says.
  int64_t planned_bytes() const;
  // By device, what was asked for in one run.
  std::vector<int64_t> allocated_bytes() const;

 private:
  void MakeGroup(const HostTensors& tensors, const Outputs& outputs);
  // A run with memory, which has not begun.
  void Begin();
  // Memory, and what lies in it.
  void Load();
  bool is_on_host() const { return what_.inputs == plan::InputsLie::kOnHost; }
  // For every device; returns how long its kernels took.
  std::vector<double> Wait();

  const What what_;
  const std::vector<Backend*> devices_;
  Crew& crew_;
  KvSegment segment_;  // the group's problem points to it
  Group group_;
  GroupOptions options_;
  plan::PlanRequest request_;
  plan::Plan plan_;
  std::vector<std::unique_ptr<ReplayMember>> members_;
  std::vector<MemberStream*> streams_;
  std::optional<PlanRun> run_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_PLAN_SIDE_H_
