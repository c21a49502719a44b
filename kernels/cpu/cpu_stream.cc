#include "kernels/cpu/cpu_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::cpu {
namespace {

// Work that one thread ends sooner than another could take part: some tens of
// microseconds.
constexpr double kInlineFlops = 2e6;
// Work of some milliseconds, in which the caller takes part.
constexpr double kHelpFlops = 1e9;

// Adds the time it lives.
class ScopedTimer {
 public:
  explicit ScopedTimer(absl::Duration& total) : total_(total) {}
  ~ScopedTimer() { total_ += absl::FromChrono(Clock::now() - start_); }

 private:
  using Clock = std::chrono::steady_clock;
  absl::Duration& total_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

absl::StatusOr<std::byte*> CpuStream::Allocate(int64_t bytes) {
  std::byte* memory = arena_.Allocate(bytes);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of input"));
  }
  return memory;
}

absl::StatusOr<std::byte*> CpuStream::MapOutput(HostSpan host) {
  return host.data();
}

absl::Status CpuStream::Upload(absl::Span<const ConstHostSpan> from,
                               std::byte* to) {
  const ScopedTimer timer(times_.upload);
  for (const ConstHostSpan& span : from) {
    if (span.empty()) continue;
    std::memcpy(to, span.data(), span.size());
    to += span.size();
  }
  return absl::OkStatus();
}

absl::Status CpuStream::Forward(absl::Span<const ForwardArgs> group,
                                const GroupOptions& options) {
  return RunGroup(group, options);
}

absl::Status CpuStream::Backward(absl::Span<const BackwardArgs> group,
                                 const GroupOptions& options) {
  return RunGroup(group, options);
}

template <class Args>
absl::Status CpuStream::RunGroup(absl::Span<const Args> group,
                                 const GroupOptions& options) {
  const ScopedTimer timer(times_.compute);
  if (options.algorithm != Algorithm::kAuto) {
    ReferenceJob job(group, options.algorithm);
    if (job.flops() <= kInlineFlops) {
      for (int64_t i = 0; i < job.tasks(); ++i) {
        job.Run(i, scratch_, [] { return false; });
      }
    } else {
      Start(std::move(job));
    }
    return absl::OkStatus();
  }
  FlashJob job(group, compute_.pool);
  if (const int64_t floats = job.workspace_floats(); floats > 0) {
    std::byte* memory =
        workspace_.Allocate(floats * static_cast<int64_t>(sizeof(float)));
    if (memory == nullptr) {
      return absl::ResourceExhaustedError("no memory for the kernels' parts");
    }
    job.Place(reinterpret_cast<float*>(memory));
  }
  if (job.flops() <= kInlineFlops) {
    job.RunHere(scratch_);
    workspace_.Reset();
  } else {
    job.Cut(compute_.pool.threads());
    Start(std::move(job));
  }
  return absl::OkStatus();
}

template <class AnyJob>
void CpuStream::Start(AnyJob job) {
  const bool here = job.flops() <= kHelpFlops;
  job_ = std::make_unique<AnyJob>(std::move(job));
  tasks_ = {.turns = job_->turns()};
  taken_flops_ = 0;
  if (here) RunUntil([] { return false; }, /*help=*/true);
}

double CpuStream::RunUntil(absl::FunctionRef<bool()> pause, bool help) {
  ThreadPool& pool = compute_.pool;
  int64_t done = tasks_.next;
  const auto run = [&](int64_t task, int worker) {
    const bool here = worker == pool.threads();
    return job_->Run(task, here ? scratch_ : compute_.scratch[worker], pause);
  };
  if (pool.RunUntil(pause, help, run, tasks_)) {
    job_.reset();
    workspace_.Reset();
    return 1;
  }
  for (; done < tasks_.next; ++done) taken_flops_ += job_->TaskFlops(done);
  double flops = taken_flops_;
  for (int64_t task : tasks_.begun) flops -= job_->FlopsLeft(task);
  // Of tasks that cost next to nothing some are left.
  constexpr double kMost = 0.999;
  return std::min(kMost, flops / job_->flops());
}

absl::StatusOr<double> CpuStream::Proceed(absl::FunctionRef<bool()> pause) {
  if (job_ == nullptr) return 1;
  const ScopedTimer timer(times_.compute);
  return RunUntil(pause, /*help=*/false);
}

absl::Status CpuStream::Download(const std::byte*, HostSpan) {
  return absl::OkStatus();
}

absl::Status CpuStream::Use(std::shared_ptr<DeviceBuffer> buffer) {
  buffers_.push_back(std::move(buffer));
  return absl::OkStatus();
}

void CpuStream::Reset() {
  job_.reset();
  workspace_.Reset();
  buffers_.clear();
  marks_ = 0;
  arena_.Reset();
}

absl::StatusOr<PhaseTimes> CpuStream::Wait() {
  return std::exchange(times_, PhaseTimes());
}

}  // namespace attnd::cpu
