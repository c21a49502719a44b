#ifndef ATTND_TESTS_SERVER_FAKES_FAULT_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_FAULT_BACKEND_H_

// A device that fails where and when it is told to.

#include <mutex>

#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {

class FaultBackend : public IdentityBackend {
 public:
  using IdentityBackend::IdentityBackend;

  // `stage` answers `status`, `times` times (-1: for ever), after having
  // succeeded `after` times more.
  void Fail(Stage stage, absl::Status status, int times = -1, int after = 0) {
    std::lock_guard lock(mutex_);
    stage_ = stage;
    status_ = std::move(status);
    times_ = times;
    after_ = after;
  }

  absl::Status On(Stage stage, Group) override {
    std::lock_guard lock(mutex_);
    if (stage != stage_ || times_ == 0) return absl::OkStatus();
    if (after_ > 0) {
      --after_;
      return absl::OkStatus();
    }
    if (times_ > 0) --times_;
    return status_;
  }

 private:
  std::mutex mutex_;
  Stage stage_ = Stage::kRun;
  absl::Status status_;
  int times_ = 0;
  int after_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_FAULT_BACKEND_H_
