#ifndef ATTND_KERNELS_CUDA_DEVICE_PINNED_MEMORY_H_
#define ATTND_KERNELS_CUDA_DEVICE_PINNED_MEMORY_H_

// Host memory that GPUs copy from and to at full speed.

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "kernels/backend.h"

namespace attnd::cuda {

// Keeps what is freed for the next block of the same size. To pin memory takes
// a third of a millisecond per MiB, and to unpin it stops the device: far more
// than the copy that it is for, so results larger than a caller's own pool keep
// must not come to that each time. Thread-safe.
class PinnedMemory : public HostMemory {
 public:
  // Keeps at most `max_idle_bytes`; what was freed longest ago goes first.
  PinnedMemory(int device, int64_t max_idle_bytes)
      : device_(device), max_idle_bytes_(max_idle_bytes) {}
  ~PinnedMemory() override;

  std::byte* Allocate(int64_t bytes) override;
  void Free(std::byte* memory, int64_t bytes) override;

  int64_t idle_bytes() const;

 private:
  struct Block {
    std::byte* data;
    int64_t bytes;
  };
  using BlockList = std::list<Block>;

  std::byte* TakeIdle(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Moves what exceeds `most` to `out`, to be unpinned without the lock.
  void EvictLocked(int64_t most, BlockList& out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unpin(const BlockList& blocks);

  const int device_;
  const int64_t max_idle_bytes_;
  mutable Mutex mutex_;
  BlockList idle_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // By size, oldest first.
  absl::flat_hash_map<int64_t, std::list<BlockList::iterator>> by_size_
      ABSL_GUARDED_BY(mutex_);
  int64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_PINNED_MEMORY_H_
