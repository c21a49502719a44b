#include "kernels/cuda/device/workspace.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// The first allocation of each kind: enough for most groups.
constexpr int64_t kLeastBytes = int64_t{64} << 10;
// A buffer grows by doubling up to here: a baseline's matrices are too large.
constexpr int64_t kDoubledBytes = int64_t{64} << 20;

// What a block takes of pinned memory.
int64_t Lines(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Workspace::~Workspace() {
  for (Buffer* buffer : {&descriptors_, &scratch_, &counters_}) {
    if (buffer->data != nullptr) cudaFreeAsync(buffer->data, stream_);
  }
  for (const Buffer& buffer : pinned_) cudaFreeHost(buffer.data);
}

// Replaces the buffer by a larger one. What is enqueued goes on
// using the old one: the stream frees it after that.
absl::Status Workspace::Grow(Buffer& buffer, int64_t bytes) {
  bytes =
      std::max({bytes, std::min(2 * buffer.bytes, kDoubledBytes), kLeastBytes});
  if (buffer.data != nullptr) cudaFreeAsync(buffer.data, stream_);
  buffer = {};
  void* data = nullptr;
  absl::Status status =
      ToStatus(cudaMallocAsync(&data, bytes, stream_), "device workspace");
  if (!status.ok()) return status;
  buffer = {static_cast<std::byte*>(data), bytes};
  return absl::OkStatus();
}

// Lets the last pinned block have room for this much.
absl::Status Workspace::ReservePinned(int64_t bytes) {
  if (!pinned_.empty() && pinned_.back().bytes - pinned_used_ >= bytes) {
    return absl::OkStatus();
  }
  void* data = nullptr;
  const int64_t size = std::max(
      {bytes, kLeastBytes, pinned_.empty() ? 0 : 2 * pinned_.back().bytes});
  absl::Status status =
      ToStatus(cudaMallocHost(&data, size), "pinned memory for descriptors");
  if (!status.ok()) return status;
  pinned_.push_back({static_cast<std::byte*>(data), size});
  pinned_used_ = 0;
  return absl::OkStatus();
}

absl::Status Workspace::ReserveCopies(absl::Span<const int64_t> block_bytes) {
  int64_t largest = 0, all = 0;
  for (int64_t bytes : block_bytes) {
    largest = std::max(largest, bytes);
    all += Lines(bytes);
  }
  if (descriptors_.bytes < largest) {
    if (absl::Status status = Grow(descriptors_, largest); !status.ok()) {
      return status;
    }
  }
  return all > 0 ? ReservePinned(all) : absl::OkStatus();
}

absl::StatusOr<const std::byte*> Workspace::CopyToDevice(
    const std::vector<std::byte>& block) {
  const int64_t bytes = static_cast<int64_t>(block.size());
  if (descriptors_.bytes < bytes) {
    if (absl::Status status = Grow(descriptors_, bytes); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = ReservePinned(bytes); !status.ok()) return status;
  std::byte* host = pinned_.back().data + pinned_used_;
  std::memcpy(host, block.data(), block.size());
  pinned_used_ += Lines(bytes);
  absl::Status status =
      ToStatus(cudaMemcpyAsync(descriptors_.data, host, bytes,
                               cudaMemcpyHostToDevice, stream_),
               "copy of descriptors");
  if (!status.ok()) return status;
  return descriptors_.data;
}

absl::StatusOr<std::byte*> Workspace::Scratch(int64_t bytes) {
  if (scratch_.bytes < bytes) {
    if (absl::Status status = Grow(scratch_, bytes); !status.ok()) {
      return status;
    }
  }
  return scratch_.data;
}

absl::StatusOr<uint32_t*> Workspace::Counters(int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(uint32_t));
  if (counters_.bytes < bytes) {
    absl::Status status = Grow(counters_, bytes);
    if (status.ok()) {
      status =
          ToStatus(cudaMemsetAsync(counters_.data, 0, counters_.bytes, stream_),
                   "clearing counters");
    }
    if (!status.ok()) {
      if (counters_.data != nullptr) cudaFreeAsync(counters_.data, stream_);
      counters_ = {};
      return status;
    }
  }
  return reinterpret_cast<uint32_t*>(counters_.data);
}

// The largest block alone is kept: it holds what all held together.
void Workspace::Recycle() {
  while (pinned_.size() > 1) {
    cudaFreeHost(pinned_.front().data);
    pinned_.pop_front();
  }
  pinned_used_ = 0;
  if (scratch_.bytes > kept_bytes_) {
    cudaFreeAsync(scratch_.data, stream_);
    scratch_ = {};
  }
}

int64_t Workspace::device_bytes() const {
  return descriptors_.bytes + scratch_.bytes + counters_.bytes;
}

}  // namespace attnd::cuda
