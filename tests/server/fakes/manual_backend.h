#ifndef ATTND_TESTS_SERVER_FAKES_MANUAL_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_MANUAL_BACKEND_H_

// A device whose kernels run until the test says that they end: nothing in a
// test needs time.

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

  // A kernel that has begun.
  struct Call {
    int id = 0;
    std::vector<int64_t> q_lens;  // of its problems, in order: tells them apart
    std::vector<const CancelToken*> tokens;
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
  void Finish(const Call& call, absl::Status status = absl::OkStatus()) {
    std::lock_guard lock(mutex_);
    running_.erase(call.id);
    if (!status.ok()) failure_ = std::move(status);
    changed_.notify_all();
  }
  // From now on kernels end at once, those that run included.
  void FinishAll() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  absl::Status On(Stage stage, Group group) override {
    if (stage != Stage::kRun) return absl::OkStatus();
    std::unique_lock lock(mutex_);
    Call call;
    call.id = ++calls_;
    for (const Problem* problem : group) {
      call.q_lens.push_back(problem->q_len);
      call.tokens.push_back(problem->cancel);
    }
    const int id = call.id;
    running_.insert(id);
    begun_.push_back(std::move(call));
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || running_.count(id) == 0; });
    return failure_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> begun_;
  std::set<int> running_;
  absl::Status failure_;  // of what ends from now on
  int calls_ = 0;
  bool open_ = false;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_MANUAL_BACKEND_H_
