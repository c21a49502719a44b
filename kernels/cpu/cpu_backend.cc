#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/cpu/aligned_memory.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/head_slice.h"
#include "kernels/cpu/system.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/reference/reference.h"

namespace attnd {
namespace {

// Work that one thread ends sooner than another could take part: some tens of
// microseconds.
constexpr double kInlineFlops = 2e6;

class CpuHostMemory : public HostMemory {
 public:
  std::byte* Allocate(int64_t bytes) override { return AllocateAligned(bytes); }
  void Free(std::byte* memory, int64_t bytes) override {
    FreeAligned(memory, bytes);
  }
};

bool Cancelled(const Problem& p) {
  return p.cancel != nullptr && p.cancel->cancelled();
}

// What all streams share.
struct Compute {
  explicit Compute(int threads) : scratch(threads), pool(threads) {}

  std::vector<Scratch> scratch;  // by worker
  ThreadPool pool;
};

double TotalFlops(const std::vector<FlashTask>& tasks) {
  double flops = 0;
  for (const FlashTask& task : tasks) flops += task.flops;
  return flops;
}

class CpuStream : public Stream {
 public:
  CpuStream(Compute& compute, int64_t retained_bytes)
      : compute_(compute), arena_(retained_bytes) {}

  bool ok() const { return scratch_.ok(); }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    std::byte* memory = arena_.Allocate(bytes);
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", bytes, " bytes of input"));
    }
    return memory;
  }

  absl::StatusOr<std::byte*> MapOutput(HostSpan host) override {
    return host.data();
  }

  absl::Status Upload(absl::Span<const ConstHostSpan> from,
                      std::byte* to) override {
    const absl::Time start = absl::Now();
    for (const ConstHostSpan& span : from) {
      if (span.empty()) continue;
      std::memcpy(to, span.data(), span.size());
      to += span.size();
    }
    times_.upload += absl::Now() - start;
    return absl::OkStatus();
  }

  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override {
    const absl::Time start = absl::Now();
    if (options.algorithm == Algorithm::kAuto) {
      FlashForward(group);
    } else {
      ReferenceForward(group, options.algorithm);
    }
    times_.compute += absl::Now() - start;
    return absl::OkStatus();
  }

  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override {
    const absl::Time start = absl::Now();
    if (options.algorithm == Algorithm::kAuto) {
      FlashBackward(group);
    } else {
      ReferenceBackward(group, options.algorithm);
    }
    times_.compute += absl::Now() - start;
    return absl::OkStatus();
  }

  absl::Status Download(const std::byte*, HostSpan) override {
    return absl::OkStatus();
  }

  absl::StatusOr<PhaseTimes> Wait() override {
    return std::exchange(times_, PhaseTimes());
  }

  void Reset() override { arena_.Reset(); }

 private:
  void FlashForward(absl::Span<const ForwardArgs> group) {
    const std::vector<FlashTask> tasks = PlanForward(group);
    RunFlash(tasks, [&](const FlashTask& task, Scratch& scratch) {
      const ForwardArgs& args = group[task.problem];
      if (Cancelled(args.problem)) return;
      if (task.kind == FlashTask::Kind::kEmpty) {
        ClearForward(args, task);
      } else {
        RunFlashForward(args, task, scratch);
      }
    });
  }

  void FlashBackward(absl::Span<const BackwardArgs> group) {
    const std::vector<FlashTask> tasks = PlanBackward(group);
    RunFlash(tasks, [&](const FlashTask& task, Scratch& scratch) {
      const BackwardArgs& args = group[task.problem];
      if (Cancelled(args.problem)) return;
      if (task.kind == FlashTask::Kind::kEmpty) {
        ClearBackward(args, task);
      } else {
        RunFlashBackward(args, task, scratch);
      }
    });
  }

  template <class RunTask>
  void RunFlash(const std::vector<FlashTask>& tasks, RunTask run) {
    if (TotalFlops(tasks) <= kInlineFlops) {
      for (const FlashTask& task : tasks) run(task, scratch_);
      return;
    }
    compute_.pool.ParallelFor(static_cast<int64_t>(tasks.size()),
                              [&](int64_t i, int worker) {
                                run(tasks[i], compute_.scratch[worker]);
                              });
  }

  // Their only error is CANCELLED, which leaves the outputs undefined and the
  // device as it was.
  void ReferenceForward(absl::Span<const ForwardArgs> group,
                        Algorithm algorithm) {
    for (const ForwardArgs& args : group) {
      if (!HasOutputs(Op::kForward, args.problem)) continue;
      const int64_t heads = args.problem.q_heads;
      compute_.pool.ParallelFor(
          args.problem.batch * heads, [&](int64_t i, int) {
            if (Cancelled(args.problem)) return;
            const HeadSlice slice(args, i / heads, i % heads);
            reference::Forward(slice.forward(), algorithm).IgnoreError();
          });
    }
  }

  void ReferenceBackward(absl::Span<const BackwardArgs> group,
                         Algorithm algorithm) {
    for (const BackwardArgs& args : group) {
      if (!HasOutputs(Op::kBackward, args.problem)) continue;
      const int64_t heads = args.problem.kv_heads;
      compute_.pool.ParallelFor(
          args.problem.batch * heads, [&](int64_t i, int) {
            if (Cancelled(args.problem)) return;
            const HeadSlice slice(args, i / heads, i % heads);
            reference::Backward(slice.backward(), algorithm).IgnoreError();
          });
    }
  }

  Compute& compute_;
  Arena arena_;
  Scratch scratch_;  // of the calling thread
  PhaseTimes times_;
};

class CpuBackend : public Backend {
 public:
  CpuBackend(int threads, int64_t retained_bytes)
      : retained_bytes_(retained_bytes),
        host_memory_(std::make_shared<CpuHostMemory>()),
        compute_(threads) {
    device_.kind = "cpu";
    device_.name = ProcessorName();
    device_.memory_bytes = SystemMemoryBytes();
    kernel_name_ =
        absl::StrCat("cpu/flash/", absl::AsciiStrToLower(FlashTargetName()));
  }

  bool ok() const {
    return std::all_of(compute_.scratch.begin(), compute_.scratch.end(),
                       [](const Scratch& s) { return s.ok(); });
  }

  const DeviceInfo& device() const override { return device_; }
  std::shared_ptr<HostMemory> host_memory() override { return host_memory_; }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    auto stream = std::make_unique<CpuStream>(compute_, retained_bytes_);
    if (!stream->ok()) {
      return absl::ResourceExhaustedError("no memory for another CPU stream");
    }
    return stream;
  }

  absl::Status Supports(Op, const Problem&,
                        const GroupOptions&) const override {
    return absl::OkStatus();
  }

  KernelInfo Kernel(Op, const Problem&,
                    const GroupOptions& options) const override {
    switch (options.algorithm) {
      case Algorithm::kAuto:
        break;
      case Algorithm::kNaive:
        return {options.algorithm, "reference/naive"};
      case Algorithm::kOnlineSoftmax:
        return {options.algorithm, "reference/online_softmax"};
      case Algorithm::kFlashAttention1:
        return {options.algorithm, "reference/flash_attention_1"};
      case Algorithm::kFlashAttention2:
        return {options.algorithm, "reference/flash_attention_2"};
    }
    return {Algorithm::kFlashAttention2, kernel_name_};
  }

  int64_t ScratchBytes(Op op, const Problem& problem,
                       const GroupOptions& options) const override {
    const int threads = compute_.pool.threads();
    if (options.algorithm == Algorithm::kAuto) {
      return FlashScratchBytes(problem, threads);
    }
    const int64_t heads =
        problem.batch *
        (op == Op::kForward ? problem.q_heads : problem.kv_heads);
    const int64_t at_once = std::min<int64_t>(heads, threads);
    const int64_t bytes =
        reference::ScratchBytes(op, problem, options.algorithm);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    return at_once > 0 && bytes > kMost / at_once ? kMost : bytes * at_once;
  }

 private:
  const int64_t retained_bytes_;
  const std::shared_ptr<HostMemory> host_memory_;
  DeviceInfo device_;
  std::string kernel_name_;
  Compute compute_;
};

}  // namespace

absl::Status CpuOptions::Validate() const {
  if (threads < 0 || threads > 1024) {
    return absl::InvalidArgumentError("threads: must be 0 to 1024");
  }
  if (retained_bytes < 0) {
    return absl::InvalidArgumentError("retained_bytes: must not be negative");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(
    const CpuOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  int threads = options.threads;
  if (threads == 0) {
    threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()),
                         1, 1024);
  }
  auto backend = std::make_unique<CpuBackend>(threads, options.retained_bytes);
  if (!backend->ok()) {
    return absl::ResourceExhaustedError("no memory for the CPU backend");
  }
  return backend;
}

}  // namespace attnd
