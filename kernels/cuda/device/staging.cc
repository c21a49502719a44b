#include "kernels/cuda/device/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// A copy starts at the latest when it has this much. Copies of 256 KiB ran at
// 15 GB/s on an H200, of this size at 22.
constexpr int64_t kFlushBytes = int64_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(cudaStream_t stream) {
  std::unique_ptr<Staging> staging(new Staging(stream));
  if (absl::Status status = staging->Allocate(); !status.ok()) return status;
  return staging;
}

absl::Status Staging::Allocate() {
  void* memory = nullptr;
  absl::Status status = ToStatus(
      cudaHostAlloc(&memory, kBlocks * kBlockBytes, cudaHostAllocPortable),
      "pinned staging memory");
  if (!status.ok()) return status;
  memory_ = static_cast<std::byte*>(memory);
  for (int i = 0; i < kBlocks; ++i) {
    blocks_[i].data = memory_ + i * kBlockBytes;
    status = ToStatus(
        cudaEventCreateWithFlags(
            &blocks_[i].read, cudaEventDisableTiming | cudaEventBlockingSync),
        "staging event");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

Staging::~Staging() {
  for (const Block& block : blocks_) {
    if (block.read != nullptr) cudaEventDestroy(block.read);
  }
  if (memory_ != nullptr) cudaFreeHost(memory_);
}

absl::Status Staging::Copy(absl::Span<const ConstHostSpan> from,
                           std::byte* to) {
  for (ConstHostSpan span : from) {
    while (!span.empty()) {
      if (Joins(to)) {
        const int64_t gap = Gap(to);
        used_ += gap;
        pending_.bytes += gap;
      } else {
        absl::Status status = Flush();
        if (status.ok() && used_ == kBlockBytes) status = NextBlock();
        if (!status.ok()) return status;
        pending_.to = to;
      }
      const size_t bytes = std::min<size_t>(span.size(), kBlockBytes - used_);
      std::memcpy(blocks_[current_].data + used_, span.data(), bytes);
      used_ += bytes;
      pending_.bytes += bytes;
      to += bytes;
      span.remove_prefix(bytes);
      if (pending_.bytes < kFlushBytes) continue;
      if (absl::Status status = Flush(); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// From the end of what has been gathered.
int64_t Staging::Gap(const std::byte* to) const {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) -
                              reinterpret_cast<uintptr_t>(pending_.to)) -
         pending_.bytes;
}

// Whether what goes to `to` can be part of the copy that is being gathered.
bool Staging::Joins(const std::byte* to) const {
  if (pending_.bytes == 0) return false;
  const int64_t gap = Gap(to);
  if (gap < 0 || gap >= kTensorAlignment || used_ + gap >= kBlockBytes) {
    return false;
  }
  // From one tensor's end to where the next may start at the soonest.
  return gap == 0 || reinterpret_cast<uintptr_t>(to) % kTensorAlignment == 0;
}

absl::Status Staging::Flush() {
  if (pending_.bytes == 0) return absl::OkStatus();
  const std::byte* from = blocks_[current_].data + used_ - pending_.bytes;
  const Pending copy = pending_;
  pending_ = {};
  return ToStatus(cudaMemcpyAsync(copy.to, from, copy.bytes,
                                  cudaMemcpyHostToDevice, stream_),
                  "upload");
}

// All of the current block has been enqueued: goes on with the next one.
absl::Status Staging::NextBlock() {
  Block& full = blocks_[current_];
  absl::Status status =
      ToStatus(cudaEventRecord(full.read, stream_), "staging event");
  if (!status.ok()) return status;
  full.under_way = true;
  current_ = (current_ + 1) % kBlocks;
  used_ = 0;
  Block& next = blocks_[current_];
  if (!next.under_way) return absl::OkStatus();
  next.under_way = false;
  return ToStatus(cudaEventSynchronize(next.read), "upload");
}

void Staging::Rewind() {
  for (Block& block : blocks_) block.under_way = false;
  current_ = 0;
  used_ = 0;
  pending_ = {};
}

}  // namespace attnd::cuda
