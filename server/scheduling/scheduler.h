#ifndef ATTND_SERVER_SCHEDULING_SCHEDULER_H_
#define ATTND_SERVER_SCHEDULING_SCHEDULER_H_

// Admits work, decides what runs next and hands groups to lanes. Work
// conserving: nothing waits while a lane is free for it, unless
// max_batch_delay says so; groups form because lanes are busy. No gRPC here.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/backend.h"
#include "server/execution/group_run.h"
#include "server/execution/lane.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/device_set.h"
#include "server/scheduling/lane_roster.h"
#include "server/scheduling/options.h"
#include "server/scheduling/placed_bytes.h"
#include "server/scheduling/reservation.h"
#include "server/scheduling/work_queue.h"
#include "server/work/account.h"
#include "server/work/work.h"

namespace attnd::server {

// Memory on a device for inputs that arrive before their work is submitted.
struct PlacedInputs {
  // Keeps the bytes charged that were reserved for it.
  std::shared_ptr<DeviceBuffer> buffer;
  uint64_t devices = 0;  // for Work::devices
};

struct SchedulerStats {
  int64_t queued_requests = 0;  // with those that were paused
  double queued_flops = 0;
  absl::Duration queued_longest;  // of those that have not begun; 0: none waits
  int64_t running_requests = 0;
  int64_t account_bytes = 0;
  int64_t account_limit_bytes = 0;
  // By device.
  std::vector<bool> device_in_service;
  std::vector<LaneStats> lanes;
  bool draining = false;
};

// Thread-safe: one lock over what waits (WorkQueue) and what runs (LaneRoster).
// Completions, kernels and the ends of requests never happen under it.
class Scheduler final : private LaneFeeder {
 public:
  // `backends` (1 to 64) outlive the scheduler; one set of lanes each.
  // `on_device_fault` is called once per device that is taken out of service,
  // on a lane's thread, before the work that it broke completes.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(
      const SchedulerOptions& options, std::vector<Backend*> backends,
      absl::AnyInvocable<void(int device, const absl::Status&)>
          on_device_fault);
  // Drains with no time left.
  ~Scheduler() override;

  // Makes room for `work`, some of whose inputs need not be here yet: the bytes
  // it takes on the account, and a place in the queue, so that what has been
  // sent is not refused for want of one. Looks at its request, client, quota,
  // deadline and devices, and at which of its tensors are in regions. Never
  // blocks.
  //   INVALID_ARGUMENT    could never fit (memory or FLOPs limit, or its quota)
  //   RESOURCE_EXHAUSTED  queue or memory full now, or its client has what it
  //                       may have; carries RetryInfo
  //   UNIMPLEMENTED       valid, but no device has a kernel for it
  //   UNAVAILABLE         draining, or no device is in service
  //   DEADLINE_EXCEEDED   the deadline has passed
  absl::StatusOr<Reservation> Admit(const Work& work);
  // `bytes`, at most DeviceInputBytes of what was admitted, on the device where
  // least has been placed of those that can run it. Never blocks.
  //   RESOURCE_EXHAUSTED  the device has no memory now; carries RetryInfo
  //   UNAVAILABLE         no device is in service, or it broke just now
  absl::StatusOr<PlacedInputs> PlaceInputs(const Reservation& reservation,
                                           int64_t bytes);
  // Queues `work`, of the request and the client that were admitted. Never
  // blocks, but see run_here_flops. OK: work->done will be called exactly once,
  // maybe before this returns. Otherwise it never is, nothing of `work` is
  // kept, release_inputs is not called, and the reservation is given up:
  //   UNAVAILABLE         draining, or no device is in service
  //   DEADLINE_EXCEEDED, CANCELLED
  // Queued work whose deadline passes completes with DEADLINE_EXCEEDED when a
  // lane next looks for work or anyone submits; to have it sooner, cancel.
  absl::Status Submit(Reservation reservation, const WorkPtr& work);
  // Both, for work whose inputs are here: any of their errors.
  absl::Status Submit(const WorkPtr& work);

  // Whether what Admit or Submit returned says that memory is missing, which
  // what is being computed soon gives back, and not a place in the queue.
  static bool LacksMemory(const absl::Status& status);

  // Marks `work` cancelled. Queued: completes it with CANCELLED (or
  // DEADLINE_EXCEEDED past its deadline) now. Running: its kernel stops at the
  // next poll and it completes so then. Completed: nothing. Not yet submitted:
  // Submit will refuse it.
  void Cancel(const WorkPtr& work);

  // Refuses new requests, lets what was admitted be submitted and finish until
  // `deadline`, of MonotonicNow(), then refuses what was not and cancels the
  // rest with UNAVAILABLE. Returns when every `done` has returned.
  void Drain(absl::Time deadline);
  // Gives back what is kept of results' memory for the next ones.
  void ReleaseIdleMemory() { devices_.TrimPools(0); }

  SchedulerStats stats() const;
  // Bit d: device d takes work.
  uint64_t in_service() const;

 private:
  Scheduler(const SchedulerOptions& options, std::vector<Backend*> backends,
            absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault);

  // What lanes ask for, on their threads or on one that borrows a lane.
  Assignment NextGroup(int lane) override;
  std::unique_ptr<GroupRun> Park(int lane,
                                 std::unique_ptr<GroupRun> run) override;
  void Complete(WorkPtr work, absl::StatusOr<WorkResult> result) override;
  void DeviceFault(int lane, const absl::Status& status) override;

  friend class Reservation;
  void GiveUp(const Reservation& reservation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether what needs one of `devices` can be served, until `deadline`.
  // UNAVAILABLE or DEADLINE_EXCEEDED.
  absl::Status CheckServes(uint64_t devices, absl::Time deadline,
                           absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unreserve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Charges the reservation's bytes and takes its place. RESOURCE_EXHAUSTED.
  absl::Status MakeRoom(const ClientQuota& quota, Reservation& reservation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the work. UNAVAILABLE, DEADLINE_EXCEEDED or CANCELLED.
  absl::Status Enqueue(Reservation& reservation, const WorkPtr& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The request just queued, to run or begin on the submitting thread with
  // `lane`, which was idle and has not been notified. Empty: its own thread
  // should look.
  Assignment Borrow(LaneRoster::Entry& lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs what Borrow has returned.
  void RunHere(LaneRoster::Entry& lane, Assignment assignment)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins it, and leaves it to the lane's thread, which wakes up meanwhile.
  void BeginHere(LaneRoster::Entry& lane, Assignment assignment)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `lane` runs `group` from now on.
  Assignment Start(LaneRoster::Entry& lane, WorkQueue::Group group,
                   absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells lanes with large work whether something waits that they could run.
  void UpdateWanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Leaves a paused run that will not go on for a lane of its device to end, as
  // that may take a while; or ends it here, if the device is broken.
  void Abandon(std::unique_ptr<GroupRun> run) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends such runs of the device of lane `lane`.
  void End(int lane, std::vector<std::unique_ptr<GroupRun>> runs)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What `work`, cancelled while it ran or waited, ends with.
  absl::Status CancelledStatus(const Work& work) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For whoever finds no room now, here or on a device.
  absl::Duration RetryDelay() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What has been taken from the queue.
  void CompleteAll(std::vector<Waiting> all, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void CompleteExpired(std::vector<Waiting> all) ABSL_LOCKS_EXCLUDED(mutex_);

  const SchedulerOptions options_;
  const std::shared_ptr<Account> account_;
  DeviceSet devices_;  // with lanes as in roster_
  const std::shared_ptr<PlacedBytes> placed_;

  Mutex fault_mutex_;
  absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault_
      ABSL_GUARDED_BY(fault_mutex_);

  mutable Mutex mutex_;
  WorkQueue queue_ ABSL_GUARDED_BY(mutex_);
  LaneRoster roster_ ABSL_GUARDED_BY(mutex_);
  // By lane, what has begun for it on another thread.
  std::vector<Assignment> begun_ ABSL_GUARDED_BY(mutex_);
  // By device, paused runs that will not go on.
  std::vector<std::vector<std::unique_ptr<GroupRun>>> abandoned_
      ABSL_GUARDED_BY(mutex_);
  // Submitted, and its `done` has not returned.
  int64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;  // admitted, not submitted
  Condition all_done_;  // none is in flight or reserved
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;  // the deadline has passed
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Of work that ran when Drain cancelled it.
  absl::flat_hash_set<uint64_t> drained_ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_SCHEDULER_H_
