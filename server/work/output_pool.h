#ifndef ATTND_SERVER_WORK_OUTPUT_POOL_H_
#define ATTND_SERVER_WORK_OUTPUT_POOL_H_

// Host memory that results are sent from, and where inputs land that are
// received piece by piece for a device that computes on host memory. A result's
// buffer lives until the transport drops it, which can be after the server is
// gone: buffers keep their pool, and the pool keeps the device's host memory.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "kernels/backend.h"
#include "server/work/account.h"

namespace attnd::server {

class OutputPool;

// Move-only memory from a pool, with the charge it was admitted under. A
// pointer, as a result has room for one of each tensor, and is moved often.
class OutputBuffer {
 public:
  HostSpan span() const {
    return taken_ == nullptr ? HostSpan() : taken_->memory;
  }
  explicit operator bool() const { return taken_ != nullptr; }

 private:
  friend class OutputPool;
  struct Taken {
    ~Taken();

    HostSpan memory;       // as much as was asked for
    int64_t capacity = 0;  // size class
    // Ends last: what the account says is free has been given back.
    std::shared_ptr<Charge> charge;
    std::shared_ptr<OutputPool> pool;
  };

  std::unique_ptr<Taken> taken_;
};

// Keeps freed memory for the next user of its size class, as fresh pages cost
// more than the copy into them. Thread-safe.
class OutputPool : public HostMemory,
                   public std::enable_shared_from_this<OutputPool> {
 public:
  // Keeps at most `max_idle_bytes` that no buffer uses; what was freed longest
  // ago goes first.
  static std::shared_ptr<OutputPool> Create(std::shared_ptr<HostMemory> memory,
                                            int64_t max_idle_bytes);
  ~OutputPool() override;

  // Uninitialised, aligned to kTensorAlignment, never null memory even for 0
  // bytes. An empty buffer (false) when there is none. `charge` may be null.
  OutputBuffer Allocate(int64_t bytes, std::shared_ptr<Charge> charge);

  // As other host memory: what is taken is `bytes` in whole pages.
  std::byte* Allocate(int64_t bytes) override;
  void Free(std::byte* memory, int64_t bytes) override;

  // Gives idle memory back until at most `max_idle_bytes` of it are left.
  void Trim(int64_t max_idle_bytes);
  int64_t idle_bytes() const;

  // What a buffer of `bytes` (<= 2^60) really takes: a whole number of pages,
  // at most a quarter more than asked for once it is more than a few.
  static int64_t Capacity(int64_t bytes);

 private:
  friend class OutputBuffer;
  struct Idle {
    std::byte* data;
    int64_t capacity;
  };
  using IdleList = std::list<Idle>;

  OutputPool(std::shared_ptr<HostMemory> memory, int64_t max_idle_bytes)
      : memory_(std::move(memory)), max_idle_bytes_(max_idle_bytes) {}
  // Idle or fresh memory; null: there is none.
  std::byte* Take(int64_t capacity);
  void Return(std::byte* data, int64_t capacity);
  // Moves what exceeds `max_idle_bytes` to `out`, to be freed without the lock.
  void Evict(int64_t max_idle_bytes, IdleList& out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeAll(const IdleList& idle);

  const std::shared_ptr<HostMemory> memory_;
  const int64_t max_idle_bytes_;
  mutable Mutex mutex_;
  IdleList idle_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // By capacity, the idle entries, newest last.
  absl::flat_hash_map<int64_t, std::list<IdleList::iterator>> by_capacity_
      ABSL_GUARDED_BY(mutex_);
  int64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_OUTPUT_POOL_H_
