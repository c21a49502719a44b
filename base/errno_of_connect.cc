#include "base/errno_of_connect.h"

#include <atomic>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace attnd {
namespace {

// Has a thread wait behind another one.
bool WaitBehindAnother() {
  absl::Mutex mutex;
  std::atomic<bool> first_waits = false, done = false;
  const auto is_set = [](std::atomic<bool>* flag) { return flag->load(); };
  std::thread first([&] {
    mutex.Lock();
    first_waits = true;
    mutex.Await(absl::Condition(+is_set, &done));
    mutex.Unlock();
  });
  mutex.Lock();
  // When it is set and the lock is here, the first thread waits.
  mutex.Await(absl::Condition(+is_set, &first_waits));
  std::atomic<bool> never = false;
  mutex.AwaitWithTimeout(absl::Condition(+is_set, &never),
                         absl::Nanoseconds(1));
  done = true;
  mutex.Unlock();
  first.join();
  return true;
}

}  // namespace

void KeepErrnoOfConnect() {
  [[maybe_unused]] static const bool kept = WaitBehindAnother();
}

}  // namespace attnd
