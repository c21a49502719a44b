#include "kernels/cuda/cuda_member.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/device/trace_range.h"
#include "kernels/cuda/forward.h"
#include "kernels/cuda/team/block_copies.h"
#include "kernels/cuda/team/peers.h"
#include "kernels/cuda/team/sums.h"

namespace attnd::cuda {

namespace {

int64_t Bytes(const BlockCopy& copy) { return copy.row_bytes * copy.rows; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMember>> CudaMember::Create(
    int device, const Gpu& gpu, const SliceOptions& slices) {
  absl::Status status = UseDevice(device);
  if (!status.ok()) return Broken(std::move(status));
  OwnedStream streams[3];
  for (OwnedStream& stream : streams) {
    auto made = QueueStream::Create(QueueStream::Priority::kNormal);
    if (!made.ok()) return Broken(made.status());
    stream = *std::move(made);
  }
  ShareMemory(device);
  return std::unique_ptr<CudaMember>(
      new CudaMember(device, gpu, slices, std::move(streams[0]),
                     std::move(streams[1]), std::move(streams[2])));
}

CudaMember::CudaMember(int device, const Gpu& gpu, const SliceOptions& slices,
                       OwnedStream memory, OwnedStream upload,
                       OwnedStream download)
    : device_(device),
      gpu_(gpu),
      slices_(slices),
      memory_(std::move(memory)),
      upload_(std::move(upload)),
      pull_(QueueStream::Priority::kHigh),
      compute_(QueueStream::Priority::kNormal),
      download_(std::move(download)),
      arena_(memory_->get()),
      upload_time_(upload_.stream()),
      download_time_(download_.stream()) {}

CudaMember::~CudaMember() {
  UseDevice(device_).IgnoreError();
  for (MemberQueue* queue : {&upload_, &pull_, &compute_, &download_}) {
    queue->WaitAnyhow();
  }
}

MemberQueue& CudaMember::At(Queue queue) {
  switch (queue) {
    case Queue::kUpload:
      return upload_;
    case Queue::kPull:
      return pull_;
    case Queue::kCompute:
      return compute_;
    case Queue::kDownload:
      break;
  }
  return download_;
}

absl::StatusOr<std::byte*> CudaMember::Allocate(int64_t bytes) {
  if (absl::Status status = UseDevice(device_); !status.ok()) {
    return Broken(std::move(status));
  }
  memory_->Use();
  return arena_.Allocate(bytes);
}

absl::StatusOr<cudaStream_t> CudaMember::Enter(Queue queue, int part) {
  absl::Status status = UseDevice(device_);
  if (!status.ok()) return Broken(std::move(status));
  const absl::StatusOr<StreamPoint> memory = memory_->Here();
  if (!memory.ok()) return Broken(memory.status());
  const absl::StatusOr<QueueStream*> stream = At(queue).Enter(part);
  if (!stream.ok()) return Broken(stream.status());
  status = (*stream)->Await(*memory);
  if (!status.ok()) return Broken(std::move(status));
  return (*stream)->get();
}

absl::Status CudaMember::Timed(
    Queue queue, SpanClock& clock,
    absl::FunctionRef<absl::Status(cudaStream_t)> enqueue) {
  const absl::StatusOr<cudaStream_t> stream = Enter(queue);
  if (!stream.ok()) return stream.status();
  absl::Status status = clock.Begin();
  if (!status.ok()) return Broken(std::move(status));
  if (status = enqueue(*stream); !status.ok()) return status;
  return Broken(clock.End());
}

absl::Status CudaMember::Upload(const BlockCopy& copy) {
  const TraceRange<trace::TeamUpload> range(Bytes(copy));
  return Timed(Queue::kUpload, upload_time_,
               [&](cudaStream_t stream) { return UploadBlock(copy, stream); });
}

absl::Status CudaMember::Pull(MemberStream& peer, const BlockCopy& copy) {
  const TraceRange<trace::TeamPull> range(Bytes(copy));
  const int from = static_cast<CudaMember&>(peer).device_;
  const absl::StatusOr<cudaStream_t> stream = Enter(Queue::kPull, from);
  if (!stream.ok()) return stream.status();
  return PullBlock(copy, from, device_, Reaches(peer), *stream);
}

absl::Status CudaMember::PullAll(MemberStream& peer,
                                 absl::Span<const BlockCopy> copies) {
  int64_t bytes = 0;
  for (const BlockCopy& copy : copies) bytes += Bytes(copy);
  const TraceRange<trace::TeamPull> range(bytes);
  const int from = static_cast<CudaMember&>(peer).device_;
  const absl::StatusOr<cudaStream_t> stream = Enter(Queue::kPull, from);
  if (!stream.ok()) return stream.status();
  return PullBlocks(copies, from, device_, Reaches(peer), *stream);
}

absl::Status CudaMember::Download(const BlockCopy& copy) {
  const TraceRange<trace::TeamDownload> range(Bytes(copy));
  return Timed(Queue::kDownload, download_time_, [&](cudaStream_t stream) {
    return DownloadBlock(copy, stream);
  });
}

absl::StatusOr<CudaMember::ComputeLane*> CudaMember::LaneAt(int number) {
  std::unique_ptr<ComputeLane>& lane = lanes_[number];
  if (lane == nullptr) {
    const absl::StatusOr<QueueStream*> stream = compute_.Enter(number);
    if (!stream.ok()) return stream.status();
    lane = std::make_unique<ComputeLane>((*stream)->get(), slices_);
  }
  return lane.get();
}

absl::Status CudaMember::Compute(
    int lane,
    absl::FunctionRef<absl::Status(ComputeLane&, cudaStream_t)> enqueue) {
  absl::Status status = UseDevice(device_);
  if (!status.ok()) return Broken(std::move(status));
  const absl::StatusOr<ComputeLane*> at = LaneAt(lane);
  if (!at.ok()) return Broken(at.status());
  const absl::StatusOr<cudaStream_t> stream = Enter(Queue::kCompute, lane);
  if (!stream.ok()) return stream.status();
  SpanClock& clock = (*at)->clock;
  if (status = clock.Begin(); !status.ok()) return Broken(std::move(status));
  if (first_lane_ < 0) first_lane_ = lane;
  if (status = enqueue(**at, *stream); !status.ok()) return status;
  return Broken(clock.End());
}

absl::Status CudaMember::Run(
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<Rest>>(Workspace&)>
        begin) {
  const int lane = kRowsLane + 1 + groups_++ % (kLanes - 1);
  return Compute(lane, [&](ComputeLane& at, cudaStream_t) {
    absl::StatusOr<std::unique_ptr<Rest>> rest = begin(at.workspace);
    if (!rest.ok()) return rest.status();
    absl::Status status = at.run.Begin(*std::move(rest));
    if (status.ok()) {
      status = at.run.Proceed([] { return false; }).status();
    }
    return Broken(std::move(status));
  });
}

absl::Status CudaMember::Forward(absl::Span<const ForwardArgs> group,
                                 const GroupOptions& options) {
  const TraceRange<trace::TeamForward> range(group.size());
  return Run([&](Workspace& workspace) {
    return BeginForward(group, options.algorithm, gpu_, workspace, slices_);
  });
}

absl::Status CudaMember::Backward(absl::Span<const BackwardArgs> group,
                                  const GroupOptions& options) {
  const TraceRange<trace::TeamBackward> range(group.size());
  return Run([&](Workspace& workspace) {
    return BeginBackward(group, options, gpu_, workspace, slices_);
  });
}

absl::Status CudaMember::Sum(const BlockSum& sum) {
  const TraceRange<trace::TeamSum> range(sum.rows);
  return Compute(kRowsLane, [&](ComputeLane&, cudaStream_t stream) {
    return EnqueueSum(sum, stream);
  });
}

absl::Status CudaMember::Dot(const RowDots& dots) {
  const TraceRange<trace::TeamDot> range(dots.rows);
  return Compute(kRowsLane, [&](ComputeLane&, cudaStream_t stream) {
    return EnqueueDot(dots, stream);
  });
}

absl::Status CudaMember::Merge(const RowMerges& merges) {
  const TraceRange<trace::TeamMerge> range(merges.rows);
  return Compute(kRowsLane, [&](ComputeLane&, cudaStream_t stream) {
    return EnqueueMerge(merges, stream);
  });
}

absl::Status CudaMember::Record(Queue queue, int point) {
  absl::Status status = UseDevice(device_);
  if (!status.ok()) return Broken(std::move(status));
  absl::StatusOr<MemberQueue::Point> here = At(queue).Here();
  if (!here.ok()) return Broken(here.status());
  const MutexLock lock(mutex_);
  points_[point] = *std::move(here);
  return absl::OkStatus();
}

absl::StatusOr<MemberQueue::Point> CudaMember::PointAt(int number) {
  const MutexLock lock(mutex_);
  const auto point = points_.find(number);
  if (point == points_.end()) {
    return absl::InternalError(
        absl::StrCat("point ", number, " has not been recorded"));
  }
  return point->second;
}

absl::Status CudaMember::Await(Queue queue, MemberStream& of, int point) {
  const auto at = static_cast<CudaMember&>(of).PointAt(point);
  if (!at.ok()) return at.status();
  At(queue).Await(*at);
  return absl::OkStatus();
}

bool CudaMember::Reaches(MemberStream& peer) {
  return CanRead(device_, static_cast<CudaMember&>(peer).device_);
}

// All queues are waited for, whatever became of one: then memory may go.
absl::StatusOr<PhaseTimes> CudaMember::Wait() {
  const TraceRange<trace::TeamWait> range;
  absl::Status status = UseDevice(device_);
  for (const auto& lane : lanes_) {
    if (lane != nullptr) lane->run.Drop();
  }
  for (MemberQueue* queue : {&upload_, &pull_, &compute_, &download_}) {
    status.Update(queue->Wait());
  }
  status.Update(memory_->Wait());
  if (!status.ok()) return Broken(std::move(status));
  for (const auto& lane : lanes_) {
    if (lane != nullptr) lane->workspace.Recycle();
  }
  PhaseTimes times;
  const absl::StatusOr<absl::Duration> compute = ComputeTime();
  if (!compute.ok()) return Broken(compute.status());
  times.compute = *compute;
  for (const auto& [clock, time] :
       {std::pair(&upload_time_, &times.upload),
        std::pair(&download_time_, &times.download)}) {
    const absl::StatusOr<absl::Duration> span = clock->Finish();
    if (!span.ok()) return Broken(span.status());
    *time = *span;
  }
  return times;
}

absl::StatusOr<absl::Duration> CudaMember::ComputeTime() {
  absl::Duration longest;
  if (first_lane_ < 0) return longest;
  // The first one's own time last, as it ends what the others refer to.
  for (int i = 1; i <= kLanes; ++i) {
    const auto& lane = lanes_[(first_lane_ + i) % kLanes];
    if (lane == nullptr) continue;
    const absl::StatusOr<absl::Duration> span =
        lane->clock.FinishSince(lanes_[first_lane_]->clock);
    if (!span.ok()) return span.status();
    longest = std::max(longest, *span);
  }
  first_lane_ = -1;
  return longest;
}

void CudaMember::Reset() {
  UseDevice(device_).IgnoreError();
  groups_ = 0;
  for (MemberQueue* queue : {&upload_, &pull_, &compute_, &download_}) {
    queue->Reset();
  }
  memory_->Reset();
  arena_.Reset();
  const MutexLock lock(mutex_);
  points_.clear();
}

}  // namespace attnd::cuda
