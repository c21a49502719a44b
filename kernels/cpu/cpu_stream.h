#ifndef ATTND_KERNELS_CPU_CPU_STREAM_H_
#define ATTND_KERNELS_CPU_CPU_STREAM_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"
#include "kernels/cpu/aligned_memory.h"
#include "kernels/cpu/job.h"
#include "kernels/cpu/thread_pool.h"

namespace attnd::cpu {

// What all streams of a backend share. Thread-safe.
struct CpuCompute {
  explicit CpuCompute(int threads) : scratch(threads), pool(threads) {}

  std::vector<Scratch> scratch;  // by worker of the pool
  ThreadPool pool;
};

// Work happens inside the calls, none is left for Wait: what takes some
// milliseconds in Forward and Backward, more than that in Proceed, whose slices
// are whole tasks.
class CpuStream : public Stream {
 public:
  // `compute` must outlive it. Keeps up to that much memory of inputs, and of
  // the kernels', between batches.
  CpuStream(CpuCompute& compute, int64_t retained_bytes,
            int64_t retained_workspace_bytes)
      : compute_(compute),
        arena_(retained_bytes),
        workspace_(retained_workspace_bytes) {}

  // False when there was no memory; then nothing else may be called.
  bool ok() const { return scratch_.ok(); }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override;
  absl::StatusOr<std::byte*> MapOutput(HostSpan host) override;
  absl::Status Upload(absl::Span<const ConstHostSpan> from,
                      std::byte* to) override;
  absl::Status UploadPinned(ConstHostSpan from, std::byte* to) override {
    return Upload({from}, to);
  }
  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override;
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override;
  absl::StatusOr<double> Proceed(absl::FunctionRef<bool()> pause) override;
  absl::Status Download(const std::byte* from, HostSpan to) override;
  absl::Status Use(std::shared_ptr<DeviceBuffer> buffer) override;
  absl::StatusOr<int> Mark() override { return marks_++; }
  absl::Status WaitFor(int) override { return absl::OkStatus(); }
  absl::StatusOr<PhaseTimes> Wait() override;
  void Reset() override;

 private:
  template <class Args>
  absl::Status RunGroup(absl::Span<const Args> group,
                        const GroupOptions& options);
  // Runs the job if it is short, and otherwise leaves it for Proceed.
  template <class AnyJob>
  void Start(AnyJob job);
  // Goes on with job_; the share of it that has been done, 1 once it is gone.
  double RunUntil(absl::FunctionRef<bool()> pause, bool help);

  CpuCompute& compute_;
  Arena arena_;
  Arena workspace_;           // of the job
  Scratch scratch_;           // of the calling thread
  std::unique_ptr<Job> job_;  // what has begun and not ended; mostly null
  ThreadPool::Tasks tasks_;   // of job_
  double taken_flops_ = 0;    // of tasks_, those before the next
  std::vector<std::shared_ptr<DeviceBuffer>> buffers_;
  int marks_ = 0;
  PhaseTimes times_;
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_CPU_STREAM_H_
