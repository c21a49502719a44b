#ifndef ATTND_KERNELS_CPU_ALIGNED_MEMORY_H_
#define ATTND_KERNELS_CPU_ALIGNED_MEMORY_H_

// Memory as the CPU backend hands it out: pages straight from the system for
// what is large, so that freeing gives them back at once.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace attnd::cpu {

// Aligned to kTensorAlignment, not initialised; null when there is none.
// `bytes` > 0. Thread-safe.
std::byte* AllocateAligned(int64_t bytes);
// `bytes` as it was allocated.
void FreeAligned(std::byte* memory, int64_t bytes);

// Memory for one batch after another. Keeps what a batch has touched for the
// next one, up to a bound, so that a warm server takes no page faults.
// Not thread-safe.
class Arena {
 public:
  explicit Arena(int64_t retained_bytes) : retained_bytes_(retained_bytes) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to kTensorAlignment; valid until Reset; null when there is none.
  // A size of 0 gives a pointer that may not be read.
  std::byte* Allocate(int64_t bytes);
  // Everything allocated is free again; what is beyond the bound goes back to
  // the system.
  void Reset();
  // What the arena holds of the system's memory.
  int64_t held_bytes() const { return held_bytes_; }

 private:
  struct Chunk {
    std::byte* data;
    int64_t bytes;
    int64_t used;
  };

  const int64_t retained_bytes_;
  int64_t held_bytes_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_ALIGNED_MEMORY_H_
