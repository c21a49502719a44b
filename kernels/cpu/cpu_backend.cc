#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/aligned_memory.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/flash_scratch.h"
#include "kernels/cpu/system.h"
#include "kernels/host_buffer.h"
#include "kernels/reference/reference.h"
#include "kernels/team/host_member.h"

namespace attnd {
namespace {

class CpuHostMemory : public HostMemory {
 public:
  std::byte* Allocate(int64_t bytes) override {
    return cpu::AllocateAligned(bytes);
  }
  void Free(std::byte* memory, int64_t bytes) override {
    cpu::FreeAligned(memory, bytes);
  }
};

class CpuBackend : public Backend {
 public:
  CpuBackend(int threads, const CpuOptions& options)
      : options_(options),
        host_memory_(std::make_shared<CpuHostMemory>()),
        compute_(threads) {
    device_.kind = "cpu";
    device_.index = options.index;
    device_.name = cpu::ProcessorName();
    device_.memory_bytes = cpu::SystemMemoryBytes();
    device_.shares_host_memory = true;
    kernel_name_ = absl::StrCat("cpu/flash/",
                                absl::AsciiStrToLower(cpu::FlashTargetName()));
  }

  bool ok() const {
    return std::all_of(compute_.scratch.begin(), compute_.scratch.end(),
                       [](const cpu::Scratch& s) { return s.ok(); });
  }

  const DeviceInfo& device() const override { return device_; }
  std::shared_ptr<HostMemory> host_memory() override { return host_memory_; }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    auto stream = std::make_unique<cpu::CpuStream>(
        compute_, options_.retained_bytes, options_.retained_workspace_bytes);
    if (!stream->ok()) {
      return absl::ResourceExhaustedError("no memory for another CPU stream");
    }
    return stream;
  }

  absl::StatusOr<std::unique_ptr<MemberStream>> NewMemberStream() override {
    absl::StatusOr<std::unique_ptr<Stream>> stream = NewStream();
    if (!stream.ok()) return stream.status();
    return NewHostMember(*std::move(stream));
  }

  absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(
      int64_t bytes) override {
    return NewHostBuffer(host_memory_, bytes);
  }

  absl::Status Pin(HostSpan) override { return absl::OkStatus(); }
  void Unpin(HostSpan) override {}
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Import(int, int64_t) override {
    return absl::UnimplementedError("the CPU has no memory of its own");
  }

  absl::Status Supports(Op, const Problem&,
                        const GroupOptions&) const override {
    return absl::OkStatus();
  }

  KernelInfo Kernel(Op, const Problem& problem,
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
    const bool dot = problem.dtype() == DType::kBF16 && cpu::FlashDotsBF16();
    return {Algorithm::kFlashAttention2,
            dot ? absl::StrCat(kernel_name_, "_bf16") : kernel_name_};
  }

  int64_t ScratchBytes(Op op, const Problem& problem,
                       const GroupOptions& options) const override {
    const int threads = compute_.pool.threads();
    if (options.algorithm == Algorithm::kAuto) {
      return cpu::FlashScratchBytes(op, problem, threads);
    }
    const int64_t heads =
        problem.batch *
        (op == Op::kForward ? problem.q_heads : problem.kv_heads);
    // The calling thread may take part.
    const int64_t at_once = std::min<int64_t>(heads, threads + 1);
    const int64_t bytes =
        reference::ScratchBytes(op, problem, options.algorithm);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    return at_once > 0 && bytes > kMost / at_once ? kMost : bytes * at_once;
  }

  double CostFlops(Op op, const Problem& problem,
                   const GroupOptions& options) const override {
    // How much longer than the fast kernels scalar code takes for a pair: 18 to
    // 31 times on AVX-512, by algorithm.
    constexpr double kScalarCode = 32;
    return kScalarCode *
           reference::VisitedFlops(op, problem, options.algorithm);
  }

  // Of f32, on AVX-512: what a core does.
  DeviceRates Rates() const override {
    DeviceRates rates;
    rates.forward.flops = rates.backward.flops = rates.decode.flops =
        50e9 * compute_.pool.threads();
    rates.memory_bytes = 10e9;
    rates.upload = rates.download = rates.pull = {.seconds = 0, .bytes = 5e9};
    return rates;
  }

  CutUnit Cut(const Problem& sequence, const GroupOptions&) const override {
    return {.rows = cpu::ForwardBlockRows(sequence, sequence.q_len),
            .columns = cpu::kTileTokens};
  }

 private:
  const CpuOptions options_;
  const std::shared_ptr<HostMemory> host_memory_;
  DeviceInfo device_;
  std::string kernel_name_;
  cpu::CpuCompute compute_;
};

}  // namespace

absl::Status CpuOptions::Validate() const {
  if (threads < 0 || threads > 1024) {
    return absl::InvalidArgumentError("threads: must be 0 to 1024");
  }
  if (index < 0) {
    return absl::InvalidArgumentError("index: must not be negative");
  }
  if (retained_bytes < 0) {
    return absl::InvalidArgumentError("retained_bytes: must not be negative");
  }
  if (retained_workspace_bytes < 0) {
    return absl::InvalidArgumentError(
        "retained_workspace_bytes: must not be negative");
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
  std::unique_ptr<CpuBackend> backend;
  try {
    backend = std::make_unique<CpuBackend>(threads, options);
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", threads, " compute threads"));
  }
  if (!backend->ok()) {
    return absl::ResourceExhaustedError("no memory for the CPU backend");
  }
  return backend;
}

}  // namespace attnd
