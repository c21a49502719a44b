#include "server/program/heap.h"

#include <malloc.h>

#include <algorithm>

namespace attnd::server {

void LimitHeap(int64_t memory_limit_bytes) {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::clamp<int64_t>(
                                memory_limit_bytes / 16, 1 << 20, 1 << 30)));
}

int64_t HeapInUse() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

void ReleaseFreeHeap() { malloc_trim(0); }

}  // namespace attnd::server
