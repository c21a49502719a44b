#ifndef ATTND_KERNELS_CUDA_CUDA_MEMBER_H_
#define ATTND_KERNELS_CUDA_CUDA_MEMBER_H_

#include <cuda_runtime_api.h>

#include <array>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "kernels/cuda/device/arena.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/rest.h"
#include "kernels/cuda/sliced_run.h"
#include "kernels/cuda/team/member_queue.h"
#include "kernels/cuda/team/queue_stream.h"
#include "kernels/cuda/team/span_clock.h"
#include "kernels/team/member_stream.h"

namespace attnd::cuda {

// A GPU that shares requests with others of this process. Each queue is a CUDA
// stream, that of pulls one for each device that is pulled from, and that of
// kernels several, in turn; points are events. team/README.md says how they fit
// together.
//
// Every call may come from another thread, one at a time, and leaves the
// device current there. Errors other than RESOURCE_EXHAUSTED are INTERNAL.
class CudaMember : public MemberStream {
 public:
  // On the device of this index, which DescribeGpu found to be `gpu`. Shares
  // the memory of the device's default pool with all GPUs that reach it.
  // INTERNAL: the device is broken.
  static absl::StatusOr<std::unique_ptr<CudaMember>> Create(
      int device, const Gpu& gpu, const SliceOptions& slices = {});
  // Waits for all that was enqueued here. No other member may have anything
  // left to do with this one's memory.
  ~CudaMember() override;

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override;
  absl::Status Upload(const BlockCopy& copy) override;
  absl::Status Pull(MemberStream& peer, const BlockCopy& copy) override;
  absl::Status PullAll(MemberStream& peer,
                       absl::Span<const BlockCopy> copies) override;
  absl::Status Download(const BlockCopy& copy) override;
  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override;
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override;
  absl::Status Sum(const BlockSum& sum) override;
  absl::Status Dot(const RowDots& dots) override;
  absl::Status Merge(const RowMerges& merges) override;
  absl::Status Record(Queue queue, int point) override;
  absl::Status Await(Queue queue, MemberStream& of, int point) override;
  bool Reaches(MemberStream& peer) override;
  absl::StatusOr<PhaseTimes> Wait() override;
  void Reset() override;

 private:
  using OwnedStream = std::unique_ptr<QueueStream>;
  CudaMember(int device, const Gpu& gpu, const SliceOptions& slices,
             OwnedStream memory, OwnedStream upload, OwnedStream download);

  // A stream of the compute queue, with what its kernels need. One launch's
  // last tiles leave multiprocessors idle, which those of the next lane take.
  struct ComputeLane {
    explicit ComputeLane(cudaStream_t stream, const SliceOptions& slices)
        : workspace(stream), run(stream, slices), clock(stream) {}
    Workspace workspace;
    SlicedRun run;  // refers to the workspace
    SpanClock clock;
  };
  // For sums, dots and merges, and then for groups, which take turns.
  static constexpr int kRowsLane = 0, kLanes = 4;

  MemberQueue& At(Queue queue);
  // The stream of a queue, or of its part `part`, for what the caller puts into
  // it next, for which all memory that was allocated is there.
  absl::StatusOr<cudaStream_t> Enter(Queue queue, int part = 0);
  // Calls `enqueue` with the queue's stream, and has `clock` time it.
  absl::Status Timed(Queue queue, SpanClock& clock,
                     absl::FunctionRef<absl::Status(cudaStream_t)> enqueue);
  // The lane, made when it is first asked for.
  absl::StatusOr<ComputeLane*> LaneAt(int number);
  // Calls `enqueue` with the lane and its stream, and times it.
  absl::Status Compute(
      int lane,
      absl::FunctionRef<absl::Status(ComputeLane&, cudaStream_t)> enqueue);
  // Forward or Backward: `begin` enqueues the first slice.
  absl::Status Run(
      absl::FunctionRef<absl::StatusOr<std::unique_ptr<Rest>>(Workspace&)>
          begin);
  // Device time from the first to the last of what all lanes did.
  absl::StatusOr<absl::Duration> ComputeTime();
  absl::StatusOr<MemberQueue::Point> PointAt(int number);

  const int device_;
  const Gpu gpu_;
  const SliceOptions slices_;
  const OwnedStream memory_;  // allocates, so that this waits for nothing
  // pull_ has a part for each peer, compute_ one for each lane.
  MemberQueue upload_, pull_, compute_, download_;
  DeviceArena arena_;  // on memory_
  std::array<std::unique_ptr<ComputeLane>, kLanes> lanes_;
  int groups_ = 0;       // since Reset
  int first_lane_ = -1;  // that was used since the last Wait
  SpanClock upload_time_, download_time_;
  Mutex mutex_;
  absl::flat_hash_map<int, MemberQueue::Point> points_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_CUDA_MEMBER_H_
