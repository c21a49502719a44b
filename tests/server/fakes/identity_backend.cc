#include "tests/server/fakes/identity_backend.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/host_buffer.h"

namespace attnd::server {
namespace {

using Stage = IdentityBackend::Stage;

int64_t Rounded(int64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

Memory NewMemory(int64_t bytes) {
  return Memory(static_cast<std::byte*>(
      std::aligned_alloc(kTensorAlignment, Rounded(bytes))));
}

void CopyOrZero(const ConstTensorView& from, int64_t from_bytes,
                const TensorView& to, int64_t to_bytes) {
  if (!to || to_bytes == 0) return;
  if (from_bytes == to_bytes && from.dtype == to.dtype) {
    std::memcpy(to.data, from.data, to_bytes);
  } else {
    std::memset(to.data, 0, to_bytes);
  }
}

// One problem's tensors are contiguous in every layout; rows of LSE are not
// when it is packed.
void ZeroRows(const Problem& p, const RowView& rows) {
  if (!rows || p.q_len == 0) return;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      float* row = rows.data + b * rows.batch_stride + h * rows.head_stride;
      std::fill_n(row, p.q_len, 0.0f);
    }
  }
}

int64_t Bytes(const Problem& p, int64_t tokens, int64_t heads, int64_t dim,
              DType dtype) {
  return p.batch * tokens * heads * dim * SizeOf(dtype);
}

void Run(const ForwardArgs& args) {
  const Problem& p = args.problem;
  CopyOrZero(p.q, Bytes(p, p.q_len, p.q_heads, p.head_dim, p.q.dtype), args.o,
             Bytes(p, p.q_len, p.q_heads, p.value_dim, args.o.dtype));
  ZeroRows(p, args.lse);
}

void Run(const BackwardArgs& args) {
  const Problem& p = args.problem;
  CopyOrZero(p.q, Bytes(p, p.q_len, p.q_heads, p.head_dim, p.q.dtype), args.dq,
             Bytes(p, p.q_len, p.q_heads, p.head_dim, args.dq.dtype));
  for (const KvSegment& s : p.kv) {
    CopyOrZero(s.k, Bytes(p, s.len, p.kv_heads, p.head_dim, s.k.dtype), s.dk,
               Bytes(p, s.len, p.kv_heads, p.head_dim, s.dk.dtype));
    CopyOrZero(s.v, Bytes(p, s.len, p.kv_heads, p.value_dim, s.v.dtype), s.dv,
               Bytes(p, s.len, p.kv_heads, p.value_dim, s.dv.dtype));
  }
}

// Mapped from a descriptor, as another process' memory on a device.
class ImportedMemory : public DeviceBuffer {
 public:
  ImportedMemory(std::byte* data, int64_t bytes,
                 std::shared_ptr<std::atomic<int64_t>> imported)
      : data_(data), bytes_(bytes), imported_(std::move(imported)) {
    *imported_ += bytes_;
  }
  ~ImportedMemory() override {
    munmap(data_, bytes_);
    *imported_ -= bytes_;
  }

  std::byte* data() const override { return data_; }
  absl::Status Write(int64_t, absl::Span<const ConstHostSpan>) override {
    return absl::InternalError("imported memory is not written to");
  }

 private:
  std::byte* const data_;
  const int64_t bytes_;
  const std::shared_ptr<std::atomic<int64_t>> imported_;
};

class IdentityStream : public Stream {
 public:
  explicit IdentityStream(IdentityBackend& backend) : backend_(backend) {}

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    absl::Status status = backend_.On(Stage::kAllocate, {});
    if (!status.ok()) return status;
    for (Block& block : blocks_) {
      if (block.used || block.bytes < bytes) continue;
      block.used = true;
      return block.memory.get();
    }
    blocks_.push_back({NewMemory(bytes), bytes, true});
    return blocks_.back().memory.get();
  }

  absl::StatusOr<std::byte*> MapOutput(HostSpan host) override {
    absl::Status status = backend_.On(Stage::kMapOutput, {});
    if (!status.ok()) return status;
    return host.data();
  }

  absl::Status Upload(absl::Span<const ConstHostSpan> from,
                      std::byte* to) override {
    const absl::Time start = absl::Now();
    absl::Status status = backend_.On(Stage::kUpload, {});
    if (!status.ok()) return status;
    for (const ConstHostSpan& span : from) {
      std::memcpy(to, span.data(), span.size());
      to += span.size();
    }
    times_.upload += absl::Now() - start;
    return absl::OkStatus();
  }

  absl::Status UploadPinned(ConstHostSpan from, std::byte* to) override {
    return Upload({from}, to);
  }

  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override {
    options_ = options;
    return RunGroup(group);
  }
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override {
    options_ = options;
    return RunGroup(group);
  }

  absl::StatusOr<double> Proceed(absl::FunctionRef<bool()> pause) override {
    const absl::Time start = absl::Now();
    absl::StatusOr<double> share = backend_.OnProceed(begun_, share_, pause);
    if (share.ok()) share_ = *share;
    times_.compute += absl::Now() - start;
    return share;
  }

  absl::Status Download(const std::byte*, HostSpan) override {
    return backend_.On(Stage::kDownload, {});
  }

  absl::Status Use(std::shared_ptr<DeviceBuffer> buffer) override {
    buffers_.push_back(std::move(buffer));
    return backend_.On(Stage::kUse, {});
  }

  absl::StatusOr<int> Mark() override { return marks_++; }
  absl::Status WaitFor(int) override {
    return backend_.On(Stage::kWaitFor, {});
  }

  bool EndsWithin(absl::Duration) override { return backend_.IsOver(); }
  absl::StatusOr<PhaseTimes> Wait() override {
    absl::Status status = backend_.On(Stage::kWait, {});
    if (!status.ok()) return status;
    plan_ = backend_.ReportOf(options_);
    return std::exchange(times_, {});
  }
  const PlanReport* plan_report() const override {
    return plan_.has_value() ? &*plan_ : nullptr;
  }

  // Keeps its memory, so that no page is touched for the first time twice.
  void Reset() override {
    buffers_.clear();
    plan_.reset();
    marks_ = 0;
    int64_t kept = 0;
    for (Block& block : blocks_) {
      block.used = false;
      kept += block.bytes;
    }
    if (kept > kMaxKeptBytes) blocks_.clear();
  }

 private:
  static constexpr int64_t kMaxKeptBytes = int64_t{256} << 20;
  struct Block {
    Memory memory;
    int64_t bytes;
    bool used;
  };

  template <typename Args>
  absl::Status RunGroup(absl::Span<const Args> group) {
    const absl::Time start = absl::Now();
    begun_.clear();
    share_ = 0;
    for (const Args& args : group) begun_.push_back(&args.problem);
    absl::Status status = backend_.On(Stage::kRun, begun_);
    if (!status.ok()) return status;
    for (const Args& args : group) Run(args);
    times_.compute += absl::Now() - start;
    return absl::OkStatus();
  }

  IdentityBackend& backend_;
  std::vector<Block> blocks_;
  std::vector<std::shared_ptr<DeviceBuffer>> buffers_;
  std::vector<const Problem*> begun_;
  double share_ = 0;  // of begun_
  int marks_ = 0;
  PhaseTimes times_;
  GroupOptions options_;            // of the last group
  std::optional<PlanReport> plan_;  // once it has waited
};

}  // namespace

std::byte* CountingHostMemory::Allocate(int64_t bytes) {
  if (live_bytes_ + bytes > limit_bytes_) return nullptr;
  live_bytes_ += bytes;
  ++allocations_;
  return NewMemory(bytes).release();
}

void CountingHostMemory::Free(std::byte* memory, int64_t bytes) {
  live_bytes_ -= bytes;
  std::free(memory);
}

IdentityBackend::IdentityBackend(int index)
    : memory_(std::make_shared<CountingHostMemory>()),
      imported_bytes_(std::make_shared<std::atomic<int64_t>>(0)) {
  device_.kind = "fake";
  device_.name = "identity";
  device_.index = index;
  device_.memory_bytes = int64_t{1} << 40;
  device_.shares_host_memory = true;
  device_.uuid = absl::StrFormat("identity%08d", index);
}

absl::StatusOr<std::unique_ptr<Stream>> IdentityBackend::NewStream() {
  return std::make_unique<IdentityStream>(*this);
}

absl::StatusOr<std::shared_ptr<DeviceBuffer>> IdentityBackend::NewBuffer(
    int64_t bytes) {
  return NewHostBuffer(memory_, bytes);
}

absl::Status IdentityBackend::Pin(HostSpan memory) {
  const MutexLock lock(mutex_);
  if (!pin_error_.ok()) return pin_error_;
  ++pins_;
  pinned_bytes_ += static_cast<int64_t>(memory.size());
  return absl::OkStatus();
}

void IdentityBackend::Unpin(HostSpan memory) {
  pinned_bytes_ -= static_cast<int64_t>(memory.size());
}

void IdentityBackend::set_pin_error(const absl::Status& error) {
  const MutexLock lock(mutex_);
  pin_error_ = error;
}

absl::StatusOr<std::shared_ptr<DeviceBuffer>> IdentityBackend::Import(
    int fd, int64_t bytes) {
  struct stat status = {};
  if (fstat(fd, &status) != 0 || status.st_size != bytes) {
    return absl::InvalidArgumentError("not memory of that size");
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return absl::InvalidArgumentError("not memory of a device");
  }
  return std::make_shared<ImportedMemory>(static_cast<std::byte*>(data), bytes,
                                          imported_bytes_);
}

absl::Status IdentityBackend::Supports(Op, const Problem&,
                                       const GroupOptions&) const {
  return absl::OkStatus();
}

KernelInfo IdentityBackend::Kernel(Op, const Problem&,
                                   const GroupOptions& options) const {
  return {options.algorithm == Algorithm::kAuto ? Algorithm::kFlashAttention2
                                                : options.algorithm,
          "identity"};
}

// As a device that materialises S would need for the naive algorithm.
int64_t IdentityBackend::ScratchBytes(Op, const Problem& problem,
                                      const GroupOptions& options) const {
  if (options.algorithm != Algorithm::kNaive) return 0;
  int64_t columns = 0;
  for (const KvSegment& s : problem.kv) columns += s.len;
  return problem.q_len * columns * 4;
}

// As if it visited every pair.
double IdentityBackend::CostFlops(Op op, const Problem& problem,
                                  const GroupOptions&) const {
  double columns = 0;
  for (const KvSegment& s : problem.kv) columns += static_cast<double>(s.len);
  const double forward =
      columns * static_cast<double>(problem.batch * problem.q_len) *
      static_cast<double>(problem.q_heads * 2 *
                          (problem.head_dim + problem.value_dim));
  return op == Op::kForward ? forward : 2.5 * forward;
}

absl::Status IdentityBackend::On(Stage, Group) { return absl::OkStatus(); }

absl::StatusOr<double> IdentityBackend::OnProceed(Group, double,
                                                  absl::FunctionRef<bool()>) {
  return 1;
}

}  // namespace attnd::server
