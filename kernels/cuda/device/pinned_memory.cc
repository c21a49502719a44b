#include "kernels/cuda/device/pinned_memory.h"

#include <cuda_runtime_api.h>

#include <iterator>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

std::byte* Pin(int64_t bytes) {
  void* memory = nullptr;
  const absl::Status status = ToStatus(
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "pinned memory");
  return status.ok() ? static_cast<std::byte*>(memory) : nullptr;
}

}  // namespace

PinnedMemory::~PinnedMemory() { Unpin(idle_); }

std::byte* PinnedMemory::Allocate(int64_t bytes) {
  if (std::byte* memory = TakeIdle(bytes)) return memory;
  if (!UseDevice(device_).ok()) return nullptr;
  if (std::byte* memory = Pin(bytes)) return memory;
  // Blocks of other sizes may be all that is in the way.
  BlockList evicted;
  {
    const MutexLock lock(mutex_);
    EvictLocked(0, evicted);
  }
  Unpin(evicted);
  return Pin(bytes);
}

void PinnedMemory::Free(std::byte* memory, int64_t bytes) {
  BlockList evicted;
  {
    const MutexLock lock(mutex_);
    idle_.push_back({memory, bytes});
    by_size_[bytes].push_back(std::prev(idle_.end()));
    idle_bytes_ += bytes;
    EvictLocked(max_idle_bytes_, evicted);
  }
  Unpin(evicted);
}

int64_t PinnedMemory::idle_bytes() const {
  const MutexLock lock(mutex_);
  return idle_bytes_;
}

// The block freed last, which caches may still hold.
std::byte* PinnedMemory::TakeIdle(int64_t bytes) {
  const MutexLock lock(mutex_);
  auto found = by_size_.find(bytes);
  if (found == by_size_.end()) return nullptr;
  const BlockList::iterator block = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) by_size_.erase(found);
  std::byte* memory = block->data;
  idle_.erase(block);
  idle_bytes_ -= bytes;
  return memory;
}

void PinnedMemory::EvictLocked(int64_t most, BlockList& out) {
  while (idle_bytes_ > most) {
    const int64_t bytes = idle_.front().bytes;
    // The oldest of all is the oldest of its size.
    auto found = by_size_.find(bytes);
    found->second.pop_front();
    if (found->second.empty()) by_size_.erase(found);
    idle_bytes_ -= bytes;
    out.splice(out.end(), idle_, idle_.begin());
  }
}

// A device that broke does not unpin any more: that memory goes with the
// process.
void PinnedMemory::Unpin(const BlockList& blocks) {
  for (const Block& block : blocks) {
    ToStatus(cudaFreeHost(block.data), "unpinning").IgnoreError();
  }
}

}  // namespace attnd::cuda
