#include "kernels/cuda/team/queue_stream.h"

#include <atomic>

#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

absl::Status MakeStream(QueueStream::Priority priority, cudaStream_t& stream) {
  int least = 0, greatest = 0;  // the smaller the number, the sooner
  absl::Status status =
      ToStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "priorities of streams");
  if (!status.ok()) return status;
  return ToStatus(
      cudaStreamCreateWithPriority(
          &stream, cudaStreamNonBlocking,
          priority == QueueStream::Priority::kHigh ? greatest : least),
      "stream");
}

}  // namespace

absl::StatusOr<std::unique_ptr<QueueStream>> QueueStream::Create(
    Priority priority) {
  cudaStream_t stream = nullptr;
  absl::Status status = MakeStream(priority, stream);
  if (!status.ok()) return status;
  return std::unique_ptr<QueueStream>(new QueueStream(stream));
}

QueueStream::QueueStream(cudaStream_t stream)
    : id_(NextId()), stream_(stream), marks_(stream) {
  here_.stream = id_;
}

QueueStream::~QueueStream() {
  WaitAnyhow();
  cudaStreamDestroy(stream_);
}

absl::Status QueueStream::Await(const StreamPoint& point) {
  if (point.event == nullptr || point.stream == id_) return absl::OkStatus();
  const auto [known, is_new] = awaited_.try_emplace(point.stream, point.number);
  if (!is_new && known->second >= point.number) return absl::OkStatus();
  absl::Status status = ToStatus(cudaStreamWaitEvent(stream_, point.event, 0),
                                 "waiting for another stream");
  if (!status.ok()) return status;
  known->second = point.number;
  Use();
  return absl::OkStatus();
}

absl::StatusOr<StreamPoint> QueueStream::Here() {
  if (!moved_) return here_;
  const absl::StatusOr<int> mark = marks_.Add();
  if (!mark.ok()) return mark.status();
  here_.number = ++points_;
  here_.event = marks_.event(*mark);
  moved_ = false;
  return here_;
}

absl::Status QueueStream::Wait() {
  if (!busy_) return absl::OkStatus();
  const absl::StatusOr<StreamPoint> here = Here();
  if (!here.ok()) return here.status();
  absl::Status status = WaitForEvent(here->event);
  if (status.ok()) busy_ = false;
  return status;
}

// An error says that the device runs nothing of this process any more.
void QueueStream::WaitAnyhow() {
  ToStatus(cudaStreamSynchronize(stream_), "the device").IgnoreError();
}

void QueueStream::Reset() {
  marks_.Clear();
  here_.event = nullptr;
  awaited_.clear();
  moved_ = busy_;
}

}  // namespace attnd::cuda
