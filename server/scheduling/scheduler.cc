#include "server/scheduling/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "proto/wire/status.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

// Of the account, large requests leave one part in so many, and those are small
// whose tensors take one in so many.
constexpr int64_t kKeptForSmall = 8, kSmall = 64;
constexpr absl::string_view kNoMemory = "no memory now";
constexpr absl::string_view kClientBytes =
    "the client's limit of memory (--max_client_queue_bytes) is reached";

absl::Status NoMemory() {
  return Refused(CallRefusal::kMemory, absl::ResourceExhaustedError(kNoMemory));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const SchedulerOptions& options, std::vector<Backend*> backends,
    absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  if (backends.empty() || backends.size() > 64) {
    return absl::InvalidArgumentError(
        "the number of devices must be from 1 to 64");
  }
  std::unique_ptr<Scheduler> scheduler(
      new Scheduler(options, std::move(backends), std::move(on_device_fault)));
  LaneFeeder& feeder = *scheduler;
  absl::Status status = scheduler->devices_.StartLanes(options, feeder);
  if (!status.ok()) return status;
  return scheduler;
}

Scheduler::Scheduler(
    const SchedulerOptions& options, std::vector<Backend*> backends,
    absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault)
    : options_(options),
      account_(Account::Create(options.memory_bytes)),
      devices_(options, std::move(backends)),
      placed_(std::make_shared<PlacedBytes>(devices_.size())),
      on_device_fault_(std::move(on_device_fault)),
      queue_(options),
      roster_(devices_.size(), options.lanes_per_device),
      begun_(static_cast<size_t>(devices_.size()) * options.lanes_per_device),
      abandoned_(devices_.size()) {}

Scheduler::~Scheduler() {
  Drain(absl::InfinitePast());
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    roster_.WakeAll();
  }
  devices_.JoinLanes();
}

absl::StatusOr<Reservation> Scheduler::Admit(const Work& work) {
  absl::StatusOr<Footprint> footprint =
      Measure(*work.request, devices_.backends(),
              PlacementOf(work, devices_.share_host_memory()));
  if (!footprint.ok()) return footprint.status();
  absl::Status fits = CheckEverFits(*footprint, options_);
  if (fits.ok()) fits = CheckEverAllowed(*footprint, work.quota);
  if (!fits.ok()) return fits;
  Reservation reservation;
  reservation.footprint_ = *std::move(footprint);
  reservation.client_ = work.client;
  std::vector<Waiting> expired;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    const absl::Time now = MonotonicNow();
    expired = queue_.TakeExpired(now);
    if (draining_) status = ShuttingDown();
    status.Update(
        CheckServes(reservation.footprint_.devices, work.deadline, now));
    if (status.ok()) status = MakeRoom(work.quota, reservation);
  }
  CompleteExpired(std::move(expired));
  if (!status.ok()) return status;
  devices_.TrimPools(account_->limit_bytes() - account_->held_bytes());
  return reservation;
}

absl::Status Scheduler::CheckServes(uint64_t devices, absl::Time deadline,
                                    absl::Time now) const {
  if ((devices & roster_.in_service()) == 0) {
    return Refused(
        CallRefusal::kNoDevice,
        absl::UnavailableError("no device that can run this is in service"));
  }
  if (deadline <= now) {
    return absl::DeadlineExceededError(
        "past the deadline before it was queued");
  }
  return absl::OkStatus();
}

absl::Status Scheduler::MakeRoom(const ClientQuota& quota,
                                 Reservation& reservation) {
  const Footprint& footprint = reservation.footprint_;
  absl::Status room;
  if (quota.queue_bytes > 0 && account_->held_bytes(reservation.client_) >
                                   quota.queue_bytes - footprint.bytes()) {
    room = Refused(CallRefusal::kMaxClientQueueBytes,
                   absl::ResourceExhaustedError(kClientBytes));
  }
  if (room.ok()) {
    room = queue_.TakePlace(reservation.client_, footprint.flops,
                            quota.queue_flops);
  }
  if (room.ok()) {
    // The last of the memory is for small requests: they would wait for large
    // ones to end otherwise, though a lane is free for them.
    const int64_t limit = account_->limit_bytes();
    const bool small = footprint.moved_bytes() <= limit / kSmall;
    reservation.charge_ =
        account_->TryCharge(reservation.client_, footprint.bytes(),
                            small ? 0 : limit / kKeptForSmall);
    if (reservation.charge_ == nullptr) {
      queue_.GiveUpPlace(reservation.client_, footprint.flops);
      room = NoMemory();
    }
  }
  if (!room.ok()) return wire::WithRetryInfo(std::move(room), RetryDelay());
  reservation.scheduler_ = this;
  ++reserved_;
  return absl::OkStatus();
}

absl::StatusOr<PlacedInputs> Scheduler::PlaceInputs(
    const Reservation& reservation, int64_t bytes) {
  uint64_t devices = reservation.footprint_.devices;
  {
    MutexLock lock(mutex_);
    devices &= roster_.in_service();
    absl::Status status =
        CheckServes(devices, absl::InfiniteFuture(), MonotonicNow());
    if (!status.ok()) return status;
  }
  // What the buffer keeps until it goes.
  struct Kept {
    std::shared_ptr<Charge> charge;
    std::unique_ptr<PlacedBytes::Entry> place;
    std::shared_ptr<DeviceBuffer> buffer;  // goes first
  };
  auto kept = std::make_shared<Kept>();
  kept->charge = reservation.charge_;
  kept->place = placed_->Place(devices, reservation.footprint_.moved_bytes());
  const int device = kept->place->device();
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer =
      devices_.NewBuffer(device, bytes);
  if (absl::IsResourceExhausted(buffer.status())) {
    MutexLock lock(mutex_);
    return wire::WithRetryInfo(NoMemory(), RetryDelay());
  }
  if (!buffer.ok()) {
    // A lane that comes upon it takes the device out of service.
    return absl::UnavailableError("the device is out of order");
  }
  kept->buffer = *std::move(buffer);
  DeviceBuffer* const memory = kept->buffer.get();
  return PlacedInputs{std::shared_ptr<DeviceBuffer>(std::move(kept), memory),
                      uint64_t{1} << device};
}

bool Scheduler::LacksMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && status.message() == kNoMemory;
}

void Scheduler::GiveUp(const Reservation& reservation) {
  MutexLock lock(mutex_);
  queue_.GiveUpPlace(reservation.client_, reservation.footprint_.flops);
  Unreserve();
}

void Scheduler::Unreserve() {
  --reserved_;
  if (reserved_ == 0 && in_flight_ == 0) all_done_.NotifyAll();
}

absl::Status Scheduler::Submit(const WorkPtr& work) {
  absl::StatusOr<Reservation> reservation = Admit(*work);
  if (!reservation.ok()) return reservation.status();
  return Submit(*std::move(reservation), work);
}

absl::Status Scheduler::Submit(Reservation reservation, const WorkPtr& work) {
  const Footprint& footprint = reservation.footprint_;
  const bool runs_here = MayRunHere(footprint, options_);
  const bool begins_here =
      !runs_here && MayBeginHere(*work, devices_.share_host_memory());
  LaneRoster::Entry* lane = nullptr;
  Assignment here;
  {
    MutexLock lock(mutex_);
    absl::Status status = Enqueue(reservation, work);
    if (!status.ok()) return status;
    lane = roster_.Wake(
        queue_.KindOf(footprint, footprint.devices & work->devices));
    // A team's stream waits for its members.
    if (lane != nullptr && (runs_here || begins_here) &&
        !devices_.IsTeam(lane->device())) {
      here = Borrow(*lane);
    }
    UpdateWanted();
  }
  if (!here.works.empty()) {
    if (runs_here) {
      RunHere(*lane, std::move(here));
    } else {
      BeginHere(*lane, std::move(here));
    }
  } else if (lane != nullptr) {
    lane->Notify();
  }
  return absl::OkStatus();
}

absl::Status Scheduler::Enqueue(Reservation& reservation, const WorkPtr& work) {
  const uint64_t devices = reservation.footprint_.devices & work->devices;
  const absl::Time now = MonotonicNow();
  if (drained_) return ShuttingDown();
  absl::Status status = CheckServes(devices, work->deadline, now);
  if (!status.ok()) return status;
  if (work->cancel.cancelled()) return absl::CancelledError("cancelled");
  work->admitted = now;
  work->charge = std::move(reservation.charge_);
  reservation.scheduler_ = nullptr;
  --reserved_;
  ++in_flight_;
  queue_.Add(work, reservation.footprint_, devices & roster_.in_service());
  return absl::OkStatus();
}

Assignment Scheduler::Borrow(LaneRoster::Entry& lane) {
  // Were anything else pending, the policy might let that lead, or join as
  // company.
  if (queue_.requests() != 1) return {};
  const absl::Time now = MonotonicNow();
  WorkQueue::Group group = queue_.Take(roster_.Filter(lane), now);
  if (group.works.empty()) return {};
  roster_.Borrow(lane);
  return Start(lane, std::move(group), now);
}

Assignment Scheduler::Start(LaneRoster::Entry& lane, WorkQueue::Group group,
                            absl::Time now) {
  roster_.Start(lane, group, now);
  return {std::move(group.works), std::move(group.run), group.may_pause};
}

void Scheduler::UpdateWanted() {
  roster_.ForEachLarge(
      [this](const LaneRoster::Entry& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
          mutex_) {
        devices_.lane(lane.lane()).SetWanted(queue_.Has(roster_.Filter(lane)));
      });
}

void Scheduler::RunHere(LaneRoster::Entry& lane, Assignment assignment) {
  devices_.lane(lane.lane()).Run(std::move(assignment));
  std::vector<WorkPtr> finished;  // ends after the lock
  MutexLock lock(mutex_);
  finished = roster_.Finish(lane, MonotonicNow());
  // Its thread may have been wanted meanwhile, or its time to look again gone.
  roster_.Return(lane, /*wanted=*/stopping_ ||
                           queue_.Has(roster_.Filter(lane)) ||
                           !abandoned_[lane.device()].empty());
}

void Scheduler::BeginHere(LaneRoster::Entry& lane, Assignment assignment) {
  assignment = devices_.lane(lane.lane()).Begin(std::move(assignment));
  auto under_way = assignment.run->TakeUnderWay();
  {
    MutexLock lock(mutex_);
    begun_[lane.lane()] = std::move(assignment);
    roster_.Return(lane, /*wanted=*/true);
  }
  // Here, where nothing waits for it: the lane's thread is to look at the
  // device as soon as it is awake.
  for (auto& tell : under_way) tell();
}

void Scheduler::Cancel(const WorkPtr& work) {
  work->cancel.Cancel();
  Waiting waited;
  {
    MutexLock lock(mutex_);
    waited = queue_.Remove(work->id);
  }
  if (waited.run != nullptr) Abandon(std::move(waited.run));
  if (waited.work != nullptr) {
    Complete(std::move(waited.work), absl::CancelledError("cancelled"));
  }
}

void Scheduler::Drain(absl::Time deadline) {
  MutexLock lock(mutex_);
  draining_ = true;
  queue_.StopWaiting();
  // Whoever waits for company looks again.
  roster_.WakeAll();
  const auto all_done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return in_flight_ == 0;
  };
  const auto none_left = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return in_flight_ == 0 && reserved_ == 0;
  };
  const bool finished = all_done_.WaitUntil(lock, deadline, none_left);
  drained_ = true;
  if (finished) return;

  std::vector<Waiting> waited = queue_.TakeUnservable(/*devices=*/0);
  roster_.ForEachRunning([this](Work& work)
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                               if (work.cancel.cancelled()) return;
                               drained_ids_.insert(work.id);
                               work.cancel.Cancel();
                             });
  lock.Unlock();
  CompleteAll(std::move(waited), ShuttingDown());
  lock.Lock();
  all_done_.Wait(lock, all_done);
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats;
  stats.account_bytes = account_->held_bytes();
  stats.account_limit_bytes = account_->limit_bytes();
  MutexLock lock(mutex_);
  stats.queued_requests = queue_.requests();
  stats.queued_flops = queue_.flops();
  const absl::Time now = MonotonicNow();
  stats.queued_longest = std::max(absl::ZeroDuration(), now - queue_.oldest());
  stats.running_requests = in_flight_ - queue_.requests();
  stats.draining = draining_;
  for (int device = 0; device < devices_.size(); ++device) {
    stats.device_in_service.push_back((roster_.in_service() >> device & 1) !=
                                      0);
    stats.lanes.push_back(roster_.stats(device, now));
  }
  return stats;
}

uint64_t Scheduler::in_service() const {
  MutexLock lock(mutex_);
  return roster_.in_service();
}

Assignment Scheduler::NextGroup(int index) {
  MutexLock lock(mutex_);
  LaneRoster::Entry& lane = roster_.at(index);
  std::vector<WorkPtr> finished = roster_.Finish(lane, MonotonicNow());
  if (!finished.empty()) {
    // Maybe the last to hold them: their end is not for under the lock.
    lock.Unlock();
    finished.clear();
    lock.Lock();
  }
  while (true) {
    // Whatever happens meanwhile, it must end.
    if (begun_[index].run != nullptr) return std::exchange(begun_[index], {});
    if (stopping_ || !roster_.InService(lane)) return {};
    const absl::Time now = MonotonicNow();
    std::vector<Waiting> expired = queue_.TakeExpired(now);
    std::vector<std::unique_ptr<GroupRun>> abandoned =
        std::exchange(abandoned_[lane.device()], {});
    if (!expired.empty() || !abandoned.empty()) {
      lock.Unlock();
      CompleteExpired(std::move(expired));
      End(index, std::move(abandoned));
      lock.Lock();
      continue;
    }
    WorkQueue::Group group = queue_.Take(roster_.Filter(lane), now);
    if (group.works.empty()) {
      roster_.WaitForWork(lane, group.ask_again, lock);
      continue;
    }
    Assignment assignment = Start(lane, std::move(group), now);
    UpdateWanted();
    // A lane that was woken for one request may have taken another.
    LaneRoster::Entry* other = roster_.WakeFor(queue_);
    lock.Unlock();
    if (other != nullptr) other->Notify();
    return assignment;
  }
}

std::unique_ptr<GroupRun> Scheduler::Park(int index,
                                          std::unique_ptr<GroupRun> run) {
  std::vector<WorkPtr> works;
  MutexLock lock(mutex_);
  LaneRoster::Entry& lane = roster_.at(index);
  // Whoever cancels looks for it in the queue afterwards, under this lock; and
  // a fault takes from there what has no device any more.
  if (run->work().cancel.cancelled() || !roster_.InService(lane)) return run;
  works = roster_.Pause(lane, run->left(), MonotonicNow());
  queue_.PutBack(works.front(), std::move(run),
                 /*device=*/uint64_t{1} << lane.device());
  UpdateWanted();
  return nullptr;
}

void Scheduler::Abandon(std::unique_ptr<GroupRun> run) {
  LaneRoster::Entry* lane = nullptr;
  {
    MutexLock lock(mutex_);
    const int device = devices_.IndexOf(run->backend());
    if ((roster_.in_service() >> device & 1) != 0) {
      abandoned_[device].push_back(std::move(run));
      lane = roster_.WakeAny(device);
    }
  }
  if (lane != nullptr) lane->Notify();
}

void Scheduler::End(int lane, std::vector<std::unique_ptr<GroupRun>> runs) {
  for (std::unique_ptr<GroupRun>& run : runs) {
    const absl::Status status = run->Abandon();
    if (!status.ok()) {
      run.reset();
      DeviceFault(lane, status);
      continue;
    }
    LaneRoster::Entry* other = nullptr;
    {
      MutexLock lock(mutex_);
      const int device = roster_.at(lane).device();
      devices_.streams(device).Return(run->TakeStream());
      roster_.ForgetPaused(device);
      // Another may begin now, which this lane may not take.
      other = roster_.WakeFor(queue_);
    }
    if (other != nullptr) other->Notify();
  }
}

void Scheduler::Complete(WorkPtr work, absl::StatusOr<WorkResult> result) {
  absl::Status status = result.status();
  if (absl::IsCancelled(status)) {
    MutexLock lock(mutex_);
    result = CancelledStatus(*work);
    drained_ids_.erase(work->id);
  } else if (absl::IsResourceExhausted(status) &&
             !wire::RetryDelay(status).has_value()) {
    MutexLock lock(mutex_);
    result = wire::WithRetryInfo(std::move(status), RetryDelay());
  }
  if (work->release_inputs) std::exchange(work->release_inputs, nullptr)();
  // From here on only the outputs hold its bytes.
  work->charge.reset();
  std::exchange(work->done, nullptr)(std::move(result));
  work.reset();
  MutexLock lock(mutex_);
  if (--in_flight_ == 0) all_done_.NotifyAll();
}

void Scheduler::DeviceFault(int lane, const absl::Status& status) {
  int device = 0;
  std::vector<Waiting> unservable;
  {
    std::vector<std::unique_ptr<GroupRun>> abandoned;  // ends after the lock
    MutexLock lock(mutex_);
    device = roster_.at(lane).device();
    if (!roster_.TakeOutOfService(device)) return;
    unservable = queue_.TakeUnservable(roster_.in_service());
    abandoned = std::exchange(abandoned_[device], {});
  }
  {
    MutexLock lock(fault_mutex_);
    if (on_device_fault_) on_device_fault_(device, status);
  }
  CompleteAll(
      std::move(unservable),
      Refused(CallRefusal::kNoDevice,
              absl::UnavailableError("no device that can run this is left")));
}

absl::Status Scheduler::CancelledStatus(const Work& work) const {
  if (drained_ids_.contains(work.id)) {
    return ShuttingDown();
  }
  if (work.deadline <= MonotonicNow()) {
    return absl::DeadlineExceededError("past the deadline");
  }
  return absl::CancelledError("cancelled");
}

absl::Duration Scheduler::RetryDelay() const {
  return roster_.RetryDelay(queue_.cost());
}

void Scheduler::CompleteAll(std::vector<Waiting> all,
                            const absl::Status& status) {
  for (Waiting& waiting : all) {
    if (waiting.run != nullptr) Abandon(std::move(waiting.run));
    Complete(std::move(waiting.work), status);
  }
}

void Scheduler::CompleteExpired(std::vector<Waiting> all) {
  if (all.empty()) return;
  CompleteAll(std::move(all),
              absl::DeadlineExceededError("past the deadline in the queue"));
}

}  // namespace attnd::server
