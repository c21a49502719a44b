#ifndef ATTND_SERVER_SCHEDULING_SCHEDULER_IMPL_H_
#define ATTND_SERVER_SCHEDULING_SCHEDULER_IMPL_H_

// The scheduler's state: one mutex over policy, limits and who runs what. Only
// scheduler.cc (admission, cancelling, draining) and scheduler_lanes.cc (what
// lanes ask for) include this.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/execution/lane.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/policy.h"
#include "server/scheduling/scheduler.h"
#include "server/work/account.h"
#include "server/work/client_shares.h"
#include "server/work/output_pool.h"

namespace attnd::server {

using WorkPtr = std::shared_ptr<Work>;

class Scheduler::Impl : public LaneFeeder {
 public:
  Impl(const SchedulerOptions& options, std::vector<Backend*> backends,
       absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault);
  ~Impl() override;
  absl::Status Start();

  absl::Status Submit(WorkPtr work);
  void Cancel(const WorkPtr& work);
  void Drain(absl::Time deadline);
  SchedulerStats stats() const;

  std::vector<WorkPtr> NextGroup(int lane) override;
  void Complete(WorkPtr work, absl::StatusOr<WorkResult> result) override;
  void DeviceFault(int lane, const absl::Status& status) override;

 private:
  struct LaneState {
    int device = 0;
    LaneFilter filter;
    std::condition_variable wake;  // with mutex_; this lane alone waits
    bool idle = false;             // waiting, and not yet woken
    bool borrowed = false;         // a submitter runs on it; its thread waits
    std::vector<WorkPtr> running;
    absl::Time taken;
    double cost = 0;  // of what is running
    std::unique_ptr<Lane> lane;
  };
  // Completions that wait for the lock to go.
  struct Ended {
    WorkPtr work;
    absl::Status status;
  };

  // All with mutex_ held.
  absl::Status AdmitLocked(const Footprint& footprint, const WorkPtr& work);
  absl::Status FullLocked(absl::string_view what) const;
  void SweepExpiredLocked(absl::Time now, std::vector<Ended>& ended);
  WorkPtr UnqueueLocked(uint64_t id);
  LaneState* WakeLocked(bool small, uint64_t devices);
  LaneState* WakeForLeftoversLocked();
  std::vector<WorkPtr> TakeGroupLocked(LaneState& lane,
                                       const Decision& decision,
                                       absl::Time now);
  std::vector<WorkPtr> FinishGroupLocked(LaneState& lane);
  std::vector<WorkPtr> BorrowLocked(LaneState& lane,
                                    const Footprint& footprint);
  int LanesInServiceLocked() const;
  absl::Status CancelledStatusLocked(const Work& work) const;

  void RunHere(LaneState& lane, std::vector<WorkPtr> group);
  void CompleteAll(std::vector<Ended> ended);
  void TrimPools();

  const SchedulerOptions options_;
  const std::vector<Backend*> backends_;
  const std::shared_ptr<Account> account_;
  std::vector<std::shared_ptr<OutputPool>> pools_;  // by device

  std::mutex fault_mutex_;  // serialises on_device_fault_
  absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault_;

  mutable std::mutex mutex_;
  Policy policy_;
  absl::flat_hash_map<uint64_t, WorkPtr> queued_;
  ClientShares queue_requests_, queue_flops_;
  RateEstimate rate_;
  uint64_t last_id_ = 0;
  uint64_t in_service_ = 0;  // bit per device
  int64_t in_flight_ = 0;    // admitted, done has not returned
  bool draining_ = false;
  bool stopping_ = false;
  absl::flat_hash_set<uint64_t> drained_;  // running, cancelled by Drain
  std::condition_variable all_done_;
  std::vector<std::unique_ptr<LaneState>> lanes_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_SCHEDULER_IMPL_H_
