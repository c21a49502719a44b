#ifndef ATTND_KERNELS_TEAM_PLAN_RUN_H_
#define ATTND_KERNELS_TEAM_PLAN_RUN_H_

// A plan on streams: its buffers get memory, and its steps are enqueued, each
// device's by a thread of its own.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"
#include "kernels/team/board.h"
#include "kernels/team/crew.h"
#include "kernels/team/host_tensors.h"
#include "kernels/team/member_stream.h"
#include "kernels/team/plan_tensors.h"

namespace attnd {

class PlanRun {
 public:
  // What a plan does, in the order of its steps: a benchmark times the second.
  enum class Stage { kLoad, kCompute, kStore };

  // Device i of the plan is streams[i]. All must outlive the run. Points of the
  // streams from `first_point` on are its own, one for each step.
  PlanRun(const plan::PlanRequest& request, const plan::Plan& plan,
          const Group& group, const GroupOptions& options,
          absl::Span<MemberStream* const> streams, int first_point);

  // Memory for all buffers. RESOURCE_EXHAUSTED, or an error of the device
  // failed().
  absl::Status Allocate();
  // Enqueues all steps of one stage, or of all. OK when they have been; an
  // error of the device failed(), which may be RESOURCE_EXHAUSTED; CANCELLED if
  // the whole group has been.
  absl::Status Run(Crew& crew, std::optional<Stage> stage = std::nullopt);
  // The device of the last error; -1: none.
  int failed() const { return failed_; }

 private:
  using Queue = MemberStream::Queue;

  static Stage StageOf(const plan::Step& step);
  static Queue QueueOf(const plan::Step& step);
  static bool FollowsByItself(const plan::Step& step, const plan::Step& before);
  // Which steps' ends others must be told of.
  void FindPoints();

  absl::Status RunDevice(int device, std::optional<Stage> stage);
  absl::Status RunStep(int index);
  absl::Status AwaitOthers(int index);
  absl::Status Enqueue(int device, const plan::Step& step);
  absl::Status Enqueue(int device, const plan::Upload& upload);
  absl::Status Enqueue(int device, const plan::Pull& pull);
  absl::Status Enqueue(int device, const plan::Compute& compute);
  absl::Status Enqueue(int device, const plan::Dot& dot);
  absl::Status Enqueue(int device, const plan::Sum& sum);
  absl::Status Enqueue(int device, const plan::Merge& merge);
  absl::Status Enqueue(int device, const plan::Download& download);

  const plan::PlanRequest& request_;
  const plan::Plan& plan_;
  const Group& group_;
  PlanTensors tensors_;
  const GroupOptions options_;
  const absl::Span<MemberStream* const> streams_;
  const int first_point_;
  std::vector<bool> is_point_;  // by step
  Board board_;
  int failed_ = -1;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_PLAN_RUN_H_
