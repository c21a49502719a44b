#ifndef ATTND_KERNELS_CPU_CPU_STREAM_H_
#define ATTND_KERNELS_CPU_CPU_STREAM_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"
#include "kernels/cpu/aligned_memory.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/thread_pool.h"

namespace attnd::cpu {

// What all streams of a backend share. Thread-safe.
struct CpuCompute {
  explicit CpuCompute(int threads) : scratch(threads), pool(threads) {}

  std::vector<Scratch> scratch;  // by worker of the pool
  ThreadPool pool;
};

// Work happens inside the calls, none is left for Wait.
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
  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override;
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override;
  absl::Status Download(const std::byte* from, HostSpan to) override;
  absl::Status Use(std::shared_ptr<DeviceBuffer> buffer) override;
  absl::StatusOr<int> Mark() override { return marks_++; }
  absl::Status WaitFor(int) override { return absl::OkStatus(); }
  absl::StatusOr<PhaseTimes> Wait() override;
  void Reset() override;

 private:
  using RunTask = absl::FunctionRef<void(const FlashTask&, Scratch&)>;

  // Runs the plan's tasks on the pool, or here if they are over before it wakes
  // up. RESOURCE_EXHAUSTED without having begun.
  absl::Status RunFlash(FlashPlan& plan, RunTask run);
  void RunOnPool(const FlashPlan& plan, bool help, RunTask run);
  absl::Status FlashForward(absl::Span<const ForwardArgs> group);
  absl::Status FlashBackward(absl::Span<const BackwardArgs> group);
  // The same for a group of the reference that costs `flops` in all, of which
  // these are one problem's tasks.
  void RunReference(double flops, int64_t tasks, ThreadPool::Task run);
  void ReferenceForward(absl::Span<const ForwardArgs> group,
                        Algorithm algorithm);
  void ReferenceBackward(absl::Span<const BackwardArgs> group,
                         Algorithm algorithm);

  CpuCompute& compute_;
  Arena arena_;
  Arena workspace_;  // of the plan that runs
  Scratch scratch_;  // of the calling thread
  std::vector<std::shared_ptr<DeviceBuffer>> buffers_;
  int marks_ = 0;
  PhaseTimes times_;
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_CPU_STREAM_H_
