#include "kernels/cpu/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace attnd::cpu {
namespace {

// From this size on memory is mapped on its own. Below it malloc is faster and
// wastes less.
constexpr int64_t kMapBytes = 256 << 10;
// From this size on in pages of 2 MiB where the system has them, as taking and
// giving back 4 KiB at a time costs more than the copy into them. Never more
// than was asked for: what fills no such page stays in small ones.
constexpr int64_t kHugePagesBytes = 4 << 20;
// Small tensors share chunks of this size.
constexpr int64_t kMinChunkBytes = 256 << 10;

constexpr int64_t RoundUp(int64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

}  // namespace

std::byte* AllocateAligned(int64_t bytes) {
  if (bytes <= 0 ||
      bytes > std::numeric_limits<int64_t>::max() - kTensorAlignment) {
    return nullptr;
  }
  if (bytes < kMapBytes) {
    return static_cast<std::byte*>(
        std::aligned_alloc(kTensorAlignment, RoundUp(bytes)));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // A system without them goes on with small ones.
  if (bytes >= kHugePagesBytes) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

void FreeAligned(std::byte* memory, int64_t bytes) {
  if (memory == nullptr) return;
  if (bytes < kMapBytes) {
    std::free(memory);
  } else {
    munmap(memory, bytes);
  }
}

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) FreeAligned(chunk.data, chunk.bytes);
}

std::byte* Arena::Allocate(int64_t bytes) {
  if (bytes < 0 || bytes > std::numeric_limits<int64_t>::max() / 2) {
    return nullptr;
  }
  bytes = RoundUp(std::max<int64_t>(bytes, 1));
  for (Chunk& chunk : chunks_) {
    if (chunk.bytes - chunk.used >= bytes) {
      std::byte* memory = chunk.data + chunk.used;
      chunk.used += bytes;
      return memory;
    }
  }
  const int64_t chunk_bytes = std::max(bytes, kMinChunkBytes);
  std::byte* memory = AllocateAligned(chunk_bytes);
  if (memory == nullptr) return nullptr;
  chunks_.push_back({memory, chunk_bytes, bytes});
  held_bytes_ += chunk_bytes;
  return memory;
}

void Arena::Reset() {
  // The largest chunks serve any request, so the smallest go first.
  std::sort(chunks_.begin(), chunks_.end(),
            [](const Chunk& a, const Chunk& b) { return a.bytes > b.bytes; });
  int64_t kept = 0;
  size_t n = 0;
  for (const Chunk& chunk : chunks_) {
    if (kept + chunk.bytes <= retained_bytes_) {
      kept += chunk.bytes;
      chunks_[n++] = {chunk.data, chunk.bytes, 0};
    } else {
      FreeAligned(chunk.data, chunk.bytes);
    }
  }
  chunks_.resize(n);
  held_bytes_ = kept;
}

}  // namespace attnd::cpu
