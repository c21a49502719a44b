#include "kernels/team/board.h"

#include "base/clock.h"

namespace attnd {
namespace {

// A GPU's step is enqueued within some microseconds of another's, sooner than a
// thread that sleeps would wake up.
constexpr absl::Duration kSpin = absl::Microseconds(50);

}  // namespace

void Board::Post(int step) {
  // Ordered with waiting_, so that either whoever waits sees this, or this sees
  // that somebody waits.
  posted_[step].store(true, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) == 0) return;
  MutexLock lock(mutex_);
  changed_.NotifyAll();
}

bool Board::Await(int step) {
  const absl::Time end = MonotonicNow() + kSpin;
  while (!IsPosted(step)) {
    if (stopped()) return false;
    if (MonotonicNow() < end) continue;
    MutexLock lock(mutex_);
    waiting_.fetch_add(1, std::memory_order_seq_cst);
    while (!posted_[step].load(std::memory_order_seq_cst) && !stopped()) {
      changed_.Wait(lock);
    }
    waiting_.fetch_sub(1, std::memory_order_seq_cst);
  }
  return true;
}

void Board::Stop() {
  stopped_.store(true, std::memory_order_release);
  MutexLock lock(mutex_);
  changed_.NotifyAll();
}

}  // namespace attnd
