#ifndef ATTND_TESTS_SERVER_FAKES_MANUAL_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_MANUAL_BACKEND_H_

// A device whose kernels run until the test says that they end: nothing in a
// test needs time.

#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <vector>

#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {

class ManualBackend : public IdentityBackend {
 public:
  using IdentityBackend::IdentityBackend;

  // Problems of so many queries, alone in their group, run in `parts` parts,
  // each as a kernel of its own.
  void RunInParts(int64_t q_len, int parts) {
    std::lock_guard lock(mutex_);
    sliced_q_len_ = q_len;
    parts_ = parts;
  }

  // A kernel that has begun.
  struct Call {
    int id = 0;
    std::vector<int64_t> q_lens;  // of its problems, in order: tells them apart
    std::vector<const CancelToken*> tokens;
    int part = 0;  // of those that run in parts, counted from 0
  };

  // Waits until a kernel begins; each is reported once, in order.
  Call Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !begun_.empty(); });
    Call call = std::move(begun_.front());
    begun_.pop_front();
    return call;
  }
  // Whether a kernel began that Await has not told of yet.
  bool HasBegun() {
    std::lock_guard lock(mutex_);
    return !begun_.empty();
  }
  // Of one that runs in parts, the next part begins.
  void Finish(const Call& call, absl::Status status = absl::OkStatus()) {
    std::lock_guard lock(mutex_);
    running_.erase(call.id);
    if (!status.ok()) failure_ = std::move(status);
    changed_.notify_all();
  }
  // A part that is not the last ends, and no other begins before the lane has
  // paused the run.
  void FinishAndPause(const Call& call) {
    std::lock_guard lock(mutex_);
    pausing_.insert(call.id);
    running_.erase(call.id);
    changed_.notify_all();
  }
  // From now on kernels end at once, those that run included; they pause when
  // their lanes want them to.
  void FinishAll() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  // From now on every Wait is the device's end.
  void FailWaits(absl::Status status) {
    std::lock_guard lock(mutex_);
    wait_failure_ = std::move(status);
  }

  absl::Status On(Stage stage, Group group) override {
    std::unique_lock lock(mutex_);
    if (stage == Stage::kWait) return wait_failure_;
    if (stage != Stage::kRun || IsSliced(group)) return absl::OkStatus();
    Run(group, 0, lock);
    return failure_;
  }

  absl::StatusOr<double> OnProceed(Group group, double share,
                                   absl::FunctionRef<bool()> pause) override {
    std::unique_lock lock(mutex_);
    if (!IsSliced(group)) return 1;
    int part = static_cast<int>(std::lround(share * parts_));
    while (part < parts_) {
      const int id = Run(group, part++, lock);
      if (!failure_.ok()) return failure_;
      if (group.front()->cancel->cancelled() || part == parts_) break;
      const bool must = pausing_.erase(id) > 0;
      if (!must && !open_) continue;
      lock.unlock();
      bool paused = false;
      do {
        paused = pause();
      } while (must && !paused && !group.front()->cancel->cancelled());
      lock.lock();
      if (paused) return static_cast<double>(part) / parts_;
      if (group.front()->cancel->cancelled()) break;
    }
    return 1;
  }

 private:
  bool IsSliced(Group group) const {
    return parts_ > 0 && group.size() == 1 &&
           group.front()->q_len >= sliced_q_len_;
  }
  // A kernel from its begin to its end; its id.
  int Run(Group group, int part, std::unique_lock<std::mutex>& lock) {
    Call call;
    call.id = ++calls_;
    call.part = part;
    for (const Problem* problem : group) {
      call.q_lens.push_back(problem->q_len);
      call.tokens.push_back(problem->cancel);
    }
    const int id = call.id;
    running_.insert(id);
    begun_.push_back(std::move(call));
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || running_.count(id) == 0; });
    return id;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> begun_;
  std::set<int> running_, pausing_;
  int64_t sliced_q_len_ = 0;
  int parts_ = 0;         // 0: none run in parts
  absl::Status failure_;  // of what ends from now on
  absl::Status wait_failure_;
  int calls_ = 0;
  bool open_ = false;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_MANUAL_BACKEND_H_
