#ifndef ATTND_TESTS_SERVER_FAKES_SLOW_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_SLOW_BACKEND_H_

// A device whose kernels take a given time, and stop sooner once every problem
// of the group is cancelled.

#include <algorithm>
#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {

class SlowBackend : public IdentityBackend {
 public:
  explicit SlowBackend(absl::Duration kernel, int index = 0)
      : IdentityBackend(index), kernel_(absl::ToInt64Nanoseconds(kernel)) {}

  void set_kernel(absl::Duration kernel) {
    kernel_ = absl::ToInt64Nanoseconds(kernel);
  }

  absl::Status On(Stage stage, Group group) override {
    if (stage != Stage::kRun) return absl::OkStatus();
    const absl::Time end = absl::Now() + absl::Nanoseconds(kernel_.load());
    const auto cancelled = [](const Problem* p) {
      return p->cancel != nullptr && p->cancel->cancelled();
    };
    while (absl::Now() < end &&
           !std::all_of(group.begin(), group.end(), cancelled)) {
      absl::SleepFor(std::min(absl::Milliseconds(1), end - absl::Now()));
    }
    return absl::OkStatus();
  }

 private:
  std::atomic<int64_t> kernel_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_SLOW_BACKEND_H_
