#ifndef ATTND_KERNELS_TEAM_BOARD_H_
#define ATTND_KERNELS_TEAM_BOARD_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace attnd {

// Where threads tell each other which steps of a plan have been enqueued.
// Thread-safe.
class Board {
 public:
  explicit Board(size_t steps)
      : posted_(std::make_unique<std::atomic<bool>[]>(steps)) {}

  void Post(int step);
  // Until the step has been posted. False: somebody has stopped, and it may
  // never be.
  bool Await(int step);
  // Whoever waits, or will, gives up.
  void Stop();
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  bool IsPosted(int step) const {
    return posted_[step].load(std::memory_order_acquire);
  }

  const std::unique_ptr<std::atomic<bool>[]> posted_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> waiting_ = 0;
  Mutex mutex_;
  Condition changed_;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_BOARD_H_
