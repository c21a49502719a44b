#include "tests/bench/study/heap.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> peak{0};

void* Count(void* memory) {
  if (memory == nullptr) std::abort();  // nothing here outlives that
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = held.fetch_add(bytes) + bytes;
  int64_t before = peak.load();
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void Release(void* memory) {
  held.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

}  // namespace

// The other forms come down to these; the address sanitizer has its own of
// them, so those that are in use say so below.
void* operator new(size_t size) {
  return Count(std::malloc(std::max<size_t>(size, 1)));
}
void* operator new(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(align, (size + align) / align * align));
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  Release(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  Release(memory);
}

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return operator new(size);
}
void* operator new[](size_t size) { return operator new(size); }
void operator delete[](void* memory) noexcept { Release(memory); }
void operator delete[](void* memory, size_t) noexcept { Release(memory); }

namespace attnd::bench {

int64_t HeapBytes() { return held.load(); }
int64_t HeapPeakBytes() { return peak.load(); }
void ResetHeapPeak() { peak.store(held.load()); }

}  // namespace attnd::bench
