#ifndef ATTND_SERVER_SCHEDULING_LANE_ROSTER_H_
#define ATTND_SERVER_SCHEDULING_LANE_ROSTER_H_

// What every lane is doing:
//
//   idle      its thread waits for work
//   woken     its thread is about to look for work
//   running   it has a group, which its thread runs
//   borrowed  it has a group, which another thread runs; its own waits
//
// Also which devices are in service, and how fast lanes get work done.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/policy.h"
#include "server/scheduling/work_queue.h"
#include "server/work/work.h"

namespace attnd::server {

// The lanes of one device.
struct LaneStats {
  int lanes = 0;
  int busy = 0;              // have a group now
  absl::Duration busy_time;  // of all of them, since the start
  absl::Duration longest;    // that a group runs now; 0: none does
};

// Not thread-safe: one lock, its owner's, guards it, and lanes wait with that.
class LaneRoster {
 public:
  // One lane. Without the lock, what is public may be used for as long as the
  // roster lives; the rest is the roster's.
  class Entry {
   public:
    Entry(int lane, int device, bool small_only)
        : lane_(lane), device_(device), small_only_(small_only) {}

    int lane() const { return lane_; }  // counted from 0
    int device() const { return device_; }
    // Lets the thread of a lane that has been woken go on. Best called without
    // the lock, which that thread wants next.
    void Notify() { wake_.NotifyOne(); }

   private:
    friend class LaneRoster;
    const int lane_;
    const int device_;
    const bool small_only_;
    Condition wake_;     // this lane's thread alone waits
    bool idle_ = false;  // its thread waits, and has not been woken
    bool borrowed_ = false;
    bool large_ = false;  // what is running may be paused
    std::vector<WorkPtr> running_;
    absl::Time taken_;          // when it began to run them
    absl::Duration busy_time_;  // until it last ended a group
    double cost_ = 0;           // of what is running
  };

  // Large requests of a device that may have begun and not ended, running or
  // paused: as many as lanes take, and at least one to run beside one that is
  // paused.
  static int MaxLarge(int lanes_per_device);

  // All devices are in service, and no lane is idle yet. With two or more
  // lanes, the first of each device is for small requests.
  LaneRoster(int devices, int lanes_per_device);
  // Lanes are counted device by device.
  Entry& at(int lane) { return *lanes_[lane]; }

  // What a lane may take now.
  LaneFilter Filter(const Entry& lane) const;

  // An idle lane for such a request, woken, for the caller to notify; null if
  // there is none. A lane for small requests comes first among equals.
  Entry* Wake(const Kind& kind);
  // Likewise for anything in `queue`.
  Entry* WakeFor(const WorkQueue& queue);
  // Likewise any of a device.
  Entry* WakeAny(int device);
  // Wakes and notifies all.
  void WakeAll();
  // The thread of `lane` waits until it is woken, or until `ask_again`, and is
  // not borrowed. Lets go of `lock` meanwhile.
  void WaitForWork(Entry& lane, absl::Time ask_again, MutexLock& lock);

  // `lane` runs `group` from now on.
  void Start(Entry& lane, const WorkQueue::Group& group, absl::Time now);
  // What `lane` was running, if anything. Maybe nobody else holds it any more,
  // and its end is not for under the lock.
  std::vector<WorkPtr> Finish(Entry& lane, absl::Time now);
  // Likewise, until it was paused with `left` of its cost to do: it counts
  // among its device's large ones until it is finished or forgotten.
  std::vector<WorkPtr> Pause(Entry& lane, double left, absl::Time now);
  // A paused one of `device` will not run again.
  void ForgetPaused(int device) { --large_[device]; }
  // Another thread than its own runs on `lane`, which has been woken and not
  // notified.
  void Borrow(Entry& lane) { lane.borrowed_ = true; }
  // It no longer does; `wanted`: the lane's own should look for work now.
  void Return(Entry& lane, bool wanted);
  void ForEachRunning(absl::FunctionRef<void(Work&)> function) const;
  // Calls function(lane) for those whose work may be paused.
  void ForEachLarge(absl::FunctionRef<void(const Entry&)> function) const;

  // Of a device, and of what its lanes run now until `now`.
  LaneStats stats(int device, absl::Time now) const;

  // Bit d: device d.
  uint64_t in_service() const { return in_service_; }
  bool InService(const Entry& lane) const {
    return (in_service_ >> lane.device_ & 1) != 0;
  }
  // Wakes and notifies its lanes. False: it was out of service before.
  bool TakeOutOfService(int device);

  // Until the lanes in service have done what runs now and work that costs
  // `waiting_cost`; for whoever finds no room.
  absl::Duration RetryDelay(double waiting_cost) const;

 private:
  const int max_large_;
  std::vector<std::unique_ptr<Entry>> lanes_;
  std::vector<int> large_;  // by device, those that have begun
  uint64_t in_service_ = 0;
  RateEstimate rate_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_LANE_ROSTER_H_
