#include "server/work/output_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace attnd::server {
namespace {

constexpr int64_t kPageBytes = 4096;

int64_t WholePages(int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

OutputBuffer::Taken::~Taken() { pool->Return(memory.data(), capacity); }

std::shared_ptr<OutputPool> OutputPool::Create(
    std::shared_ptr<HostMemory> memory, int64_t max_idle_bytes) {
  return std::shared_ptr<OutputPool>(
      new OutputPool(std::move(memory), max_idle_bytes));
}

OutputPool::~OutputPool() { FreeAll(idle_); }

int64_t OutputPool::Capacity(int64_t bytes) {
  // Four classes between one power of two and the next, in whole pages.
  const uint64_t pages = std::max<uint64_t>(
      1, (static_cast<uint64_t>(bytes) + kPageBytes - 1) / kPageBytes);
  const uint64_t step = std::max<uint64_t>(1, std::bit_floor(pages - 1) / 4);
  return static_cast<int64_t>((pages + step - 1) / step * step) * kPageBytes;
}

OutputBuffer OutputPool::Allocate(int64_t bytes,
                                  std::shared_ptr<Charge> charge) {
  const int64_t capacity = Capacity(bytes);
  std::byte* data = Take(capacity);
  OutputBuffer buffer;
  if (data == nullptr) return buffer;
  buffer.taken_.reset(
      new OutputBuffer::Taken{{data, static_cast<size_t>(bytes)},
                              capacity,
                              std::move(charge),
                              shared_from_this()});
  return buffer;
}

std::byte* OutputPool::Allocate(int64_t bytes) {
  return Take(WholePages(bytes));
}

void OutputPool::Free(std::byte* memory, int64_t bytes) {
  Return(memory, WholePages(bytes));
}

std::byte* OutputPool::Take(int64_t capacity) {
  std::byte* data = nullptr;
  {
    MutexLock lock(mutex_);
    auto found = by_capacity_.find(capacity);
    if (found != by_capacity_.end()) {
      data = found->second.back()->data;
      idle_.erase(found->second.back());
      found->second.pop_back();
      if (found->second.empty()) by_capacity_.erase(found);
      idle_bytes_ -= capacity;
    }
  }
  if (data == nullptr) data = memory_->Allocate(capacity);
  if (data == nullptr) {
    // Idle memory of other sizes may be all that is in the way.
    Trim(0);
    data = memory_->Allocate(capacity);
  }
  return data;
}

void OutputPool::Trim(int64_t max_idle_bytes) {
  IdleList evicted;
  {
    MutexLock lock(mutex_);
    Evict(max_idle_bytes, evicted);
  }
  FreeAll(evicted);
}

int64_t OutputPool::idle_bytes() const {
  MutexLock lock(mutex_);
  return idle_bytes_;
}

void OutputPool::Return(std::byte* data, int64_t capacity) {
  IdleList evicted;
  {
    MutexLock lock(mutex_);
    idle_.push_back({data, capacity});
    by_capacity_[capacity].push_back(std::prev(idle_.end()));
    idle_bytes_ += capacity;
    Evict(max_idle_bytes_, evicted);
  }
  FreeAll(evicted);
}

void OutputPool::Evict(int64_t max_idle_bytes, IdleList& out) {
  while (idle_bytes_ > max_idle_bytes) {
    const int64_t capacity = idle_.front().capacity;
    // The oldest of all is the oldest of its size.
    auto found = by_capacity_.find(capacity);
    found->second.pop_front();
    if (found->second.empty()) by_capacity_.erase(found);
    idle_bytes_ -= capacity;
    out.splice(out.end(), idle_, idle_.begin());
  }
}

void OutputPool::FreeAll(const IdleList& idle) {
  for (const Idle& entry : idle) memory_->Free(entry.data, entry.capacity);
}

}  // namespace attnd::server
