#include "kernels/cuda/device/device_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// Beyond any device: what the runtime would call a mistake, not a shortage.
constexpr int64_t kMostBytes = int64_t{1} << 44;

absl::Status MakeStream(cudaStream_t& stream) {
  return ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                  "stream of device buffers");
}

absl::Status MakeEvent(cudaEvent_t& event) {
  return ToStatus(cudaEventCreateWithFlags(
                      &event, cudaEventDisableTiming | cudaEventBlockingSync),
                  "event of device buffers");
}

// Takes bytes off the front of `from` until `to` is full or nothing is left;
// returns how many.
int64_t Gather(absl::Span<const ConstHostSpan>& from, size_t& offset,
               HostSpan to) {
  size_t gathered = 0;
  while (!from.empty() && gathered < to.size()) {
    const ConstHostSpan part =
        from.front().subspan(offset, to.size() - gathered);
    if (!part.empty()) {
      std::memcpy(to.data() + gathered, part.data(), part.size());
    }
    gathered += part.size();
    offset += part.size();
    if (offset == from.front().size()) {
      from.remove_prefix(1);
      offset = 0;
    }
  }
  return static_cast<int64_t>(gathered);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Landing>> Landing::Create(int device) {
  std::unique_ptr<Landing> landing(new Landing(device));
  if (absl::Status status = landing->Allocate(); !status.ok()) return status;
  return landing;
}

absl::Status Landing::Allocate() {
  absl::Status status = UseDevice(device_);
  if (status.ok()) status = MakeStream(copies_);
  if (status.ok()) status = MakeStream(frees_);
  void* memory = nullptr;
  if (status.ok()) {
    status = ToStatus(
        cudaHostAlloc(&memory, kBlocks * kBlockBytes, cudaHostAllocPortable),
        "pinned memory for device buffers");
  }
  if (!status.ok()) return status;
  memory_ = static_cast<std::byte*>(memory);
  const MutexLock lock(mutex_);
  for (int i = 0; i < kBlocks; ++i) {
    blocks_[i].data = memory_ + i * kBlockBytes;
    if (status = MakeEvent(blocks_[i].read); !status.ok()) return status;
    idle_.push_back(&blocks_[i]);
  }
  return absl::OkStatus();
}

Landing::~Landing() {
  UseDevice(device_).IgnoreError();
  for (cudaStream_t stream : {copies_, frees_}) {
    if (stream == nullptr) continue;
    // An error says that the device runs nothing of this process any more.
    ToStatus(cudaStreamSynchronize(stream), "the device").IgnoreError();
    cudaStreamDestroy(stream);
  }
  for (const Block& block : blocks_) {
    if (block.read != nullptr) cudaEventDestroy(block.read);
  }
  if (memory_ != nullptr) cudaFreeHost(memory_);
}

absl::Status Landing::Copy(absl::Span<const ConstHostSpan> from,
                           std::byte* to) {
  size_t offset = 0;
  while (!from.empty()) {
    absl::StatusOr<Block*> block = Take();
    if (!block.ok()) return block.status();
    const int64_t bytes =
        Gather(from, offset, HostSpan((*block)->data, kBlockBytes));
    absl::Status status = Enqueue(**block, bytes, to);
    GiveBack(*block);
    if (!status.ok()) return status;
    to += bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<Landing::Block*> Landing::Take() {
  Block* block = nullptr;
  {
    MutexLock lock(mutex_);
    given_back_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !idle_.empty();
    });
    block = idle_.front();
    idle_.pop_front();
  }
  if (!block->used) return block;
  absl::Status status =
      ToStatus(cudaEventSynchronize(block->read), "copy to a device buffer");
  if (status.ok()) return block;
  GiveBack(block);  // others wait for one
  return status;
}

void Landing::GiveBack(Block* block) {
  {
    const MutexLock lock(mutex_);
    idle_.push_back(block);
  }
  given_back_.NotifyOne();
}

absl::Status Landing::Enqueue(Block& block, int64_t bytes, std::byte* to) {
  if (bytes == 0) return absl::OkStatus();
  absl::Status status = ToStatus(
      cudaMemcpyAsync(to, block.data, bytes, cudaMemcpyHostToDevice, copies_),
      "copy to a device buffer");
  if (status.ok()) {
    status = ToStatus(cudaEventRecord(block.read, copies_),
                      "event of device buffers");
  }
  block.used = true;
  return status;
}

absl::StatusOr<std::shared_ptr<CudaBuffer>> CudaBuffer::Create(
    std::shared_ptr<Landing> landing, int64_t bytes) {
  if (bytes > kMostBytes) {
    return absl::ResourceExhaustedError("more than any device has");
  }
  absl::Status status = UseDevice(landing->device());
  if (!status.ok()) return status;
  std::shared_ptr<CudaBuffer> buffer(new CudaBuffer(std::move(landing)));
  if (status = MakeEvent(buffer->written_); !status.ok()) return status;
  void* memory = nullptr;
  bytes = std::max<int64_t>(bytes, 1);
  const cudaStream_t copies = buffer->landing_->copies();
  status = ToStatus(cudaMallocAsync(&memory, bytes, copies),
                    absl::StrCat(bytes, " bytes of device memory"));
  if (!status.ok()) return status;
  buffer->memory_ = static_cast<std::byte*>(memory);
  // Also a stream that reads what nobody wrote comes after the allocation.
  status = ToStatus(cudaEventRecord(buffer->written_, copies),
                    "event of device buffers");
  if (!status.ok()) return status;
  return buffer;
}

CudaBuffer::~CudaBuffer() {
  UseDevice(landing_->device()).IgnoreError();
  if (memory_ != nullptr) {
    JoinTo(landing_->frees()).IgnoreError();
    ToStatus(cudaFreeAsync(memory_, landing_->frees()), "freeing")
        .IgnoreError();
  }
  if (written_ != nullptr) cudaEventDestroy(written_);
}

absl::Status CudaBuffer::Write(int64_t offset,
                               absl::Span<const ConstHostSpan> from) {
  absl::Status status = UseDevice(landing_->device());
  if (status.ok()) status = landing_->Copy(from, memory_ + offset);
  // Whichever Write records it last, it is behind the copies of all that have
  // ended.
  if (status.ok()) {
    status = ToStatus(cudaEventRecord(written_, landing_->copies()),
                      "event of device buffers");
  }
  return Broken(std::move(status));
}

absl::Status CudaBuffer::JoinTo(cudaStream_t stream) const {
  return Broken(
      ToStatus(cudaStreamWaitEvent(stream, written_, 0), "device buffer"));
}

absl::Status CudaBuffer::Release(cudaEvent_t event) const {
  return Broken(ToStatus(cudaStreamWaitEvent(landing_->frees(), event, 0),
                         "device buffer"));
}

}  // namespace attnd::cuda
