#include "tests/bench/gpu/pcie_ceiling.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/descriptor.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/pinning.h"
#include "kernels/cuda/device/status.h"
#include "tests/bench/clock.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

using cuda::ToStatus;

// Rounds of a pair that are enqueued before the first is waited for.
constexpr int kUnderWay = 2;
constexpr int kAloneRounds = 200;

// Pinned bytes of the host, written once.
class HostBytes {
 public:
  virtual ~HostBytes() = default;
  std::byte* data() const { return data_; }

 protected:
  std::byte* data_ = nullptr;
};

class AllocatedBytes : public HostBytes {
 public:
  ~AllocatedBytes() override { cudaFreeHost(data_); }
  absl::Status Make(int64_t bytes) {
    void* memory = nullptr;
    absl::Status status = ToStatus(
        cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "host memory");
    if (!status.ok()) return status;
    data_ = static_cast<std::byte*>(memory);
    std::memset(data_, 1, bytes);
    return status;
  }
};

class MemfdBytes : public HostBytes {
 public:
  explicit MemfdBytes(int device) : device_(device) {}
  ~MemfdBytes() override {
    for (HostSpan piece : pinned_) cuda::UnpinMemory(device_, piece);
    if (reserved_ != MAP_FAILED) munmap(reserved_, reserved_bytes_);
  }
  absl::Status Make(int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page;
    memory_ = Descriptor(memfd_create("pcie", MFD_CLOEXEC));
    reserved_bytes_ = bytes + kPinnedPieceBytes;
    reserved_ = mmap(nullptr, reserved_bytes_, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!memory_.valid() || ftruncate(memory_.get(), bytes) != 0 ||
        reserved_ == MAP_FAILED) {
      return absl::ResourceExhaustedError("a memfd");
    }
    const auto first = reinterpret_cast<uintptr_t>(reserved_);
    void* at = reinterpret_cast<void*>((first + kPinnedPieceBytes - 1) /
                                       kPinnedPieceBytes * kPinnedPieceBytes);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             memory_.get(), 0) != at) {
      return absl::ResourceExhaustedError("mapping a memfd");
    }
    data_ = static_cast<std::byte*>(at);
    madvise(data_, bytes, MADV_HUGEPAGE);  // where the system lets it
    std::memset(data_, 1, bytes);
    for (int64_t done = 0; done < bytes; done += kPinnedPieceBytes) {
      const HostSpan piece(data_ + done, static_cast<size_t>(std::min(
                                             bytes - done, kPinnedPieceBytes)));
      absl::Status status = cuda::PinMemory(device_, piece);
      if (!status.ok()) return status;
      pinned_.push_back(piece);
    }
    return absl::OkStatus();
  }

 private:
  const int device_;
  Descriptor memory_;
  void* reserved_ = MAP_FAILED;
  int64_t reserved_bytes_ = 0;
  std::vector<HostSpan> pinned_;
};

absl::StatusOr<std::unique_ptr<HostBytes>> MakeBytes(const PcieLoad& load,
                                                     int64_t bytes) {
  bytes = std::max<int64_t>(bytes, 1);
  if (load.memory == HostKind::kAllocated) {
    auto memory = std::make_unique<AllocatedBytes>();
    if (absl::Status s = memory->Make(bytes); !s.ok()) return s;
    return memory;
  }
  auto memory = std::make_unique<MemfdBytes>(load.device);
  if (absl::Status s = memory->Make(bytes); !s.ok()) return s;
  return memory;
}

// Two streams, and what is copied on them.
class Pair {
 public:
  explicit Pair(const PcieLoad& load) : load_(load) {}
  ~Pair() {
    for (Way* way : {&up_, &down_}) {
      if (way->stream == nullptr) continue;
      cudaStreamSynchronize(way->stream);
      cudaStreamDestroy(way->stream);
      cudaFree(way->device);
    }
    for (auto& events : ends_) {
      for (cudaEvent_t event : events) {
        if (event != nullptr) cudaEventDestroy(event);
      }
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  absl::Status Make() {
    absl::Status status = Make(load_.up_bytes, up_);
    if (status.ok()) status = Make(load_.down_bytes, down_);
    for (auto& events : ends_) {
      for (cudaEvent_t& event : events) {
        if (!status.ok()) return status;
        status = ToStatus(
            cudaEventCreateWithFlags(
                &event, cudaEventDisableTiming | cudaEventBlockingSync),
            "an event");
      }
    }
    return status;
  }

  // Enqueues a round, once the one that was enqueued kUnderWay before is over.
  absl::Status Next() {
    auto& ends = ends_[rounds_ % kUnderWay];
    absl::Status status;
    if (rounds_ >= kUnderWay) status = WaitFor(ends);
    if (status.ok()) status = CopyUp(up_.stream);
    if (status.ok()) status = CopyDown(down_.stream);
    if (status.ok()) status = Record(ends[0], up_.stream);
    if (status.ok()) status = Record(ends[1], down_.stream);
    ++rounds_;
    return status;
  }
  absl::Status Finish() {
    absl::Status status = ToStatus(cudaStreamSynchronize(up_.stream), "up");
    if (!status.ok()) return status;
    return ToStatus(cudaStreamSynchronize(down_.stream), "down");
  }
  int64_t rounds() const { return rounds_; }

  // A round up and then down, waited for.
  absl::Status Alone() {
    absl::Status status = CopyUp(up_.stream);
    if (status.ok()) status = CopyDown(up_.stream);
    if (!status.ok()) return status;
    return ToStatus(cudaStreamSynchronize(up_.stream), "a round");
  }

 private:
  struct Way {
    std::unique_ptr<HostBytes> host;
    std::byte* device = nullptr;
    cudaStream_t stream = nullptr;
    size_t bytes = 0;
  };

  absl::Status Make(int64_t bytes, Way& way) const {
    auto host = MakeBytes(load_, bytes);
    if (!host.ok()) return host.status();
    way.host = *std::move(host);
    way.bytes = static_cast<size_t>(bytes);
    absl::Status status =
        ToStatus(cudaStreamCreateWithFlags(&way.stream, cudaStreamNonBlocking),
                 "a stream");
    void* device = nullptr;
    if (status.ok()) {
      status = ToStatus(cudaMalloc(&device, std::max<int64_t>(bytes, 1)),
                        "device memory");
    }
    way.device = static_cast<std::byte*>(device);
    return status;
  }
  absl::Status CopyUp(cudaStream_t stream) const {
    if (up_.bytes == 0) return absl::OkStatus();
    if (load_.memory == HostKind::kMemfd) {
      return cuda::CopyToDevice({up_.host->data(), up_.bytes}, up_.device,
                                stream);
    }
    return ToStatus(cudaMemcpyAsync(up_.device, up_.host->data(), up_.bytes,
                                    cudaMemcpyHostToDevice, stream),
                    "up");
  }
  absl::Status CopyDown(cudaStream_t stream) const {
    if (down_.bytes == 0) return absl::OkStatus();
    if (load_.memory == HostKind::kMemfd) {
      return cuda::CopyToHost(down_.device, {down_.host->data(), down_.bytes},
                              stream);
    }
    return ToStatus(
        cudaMemcpyAsync(down_.host->data(), down_.device, down_.bytes,
                        cudaMemcpyDeviceToHost, stream),
        "down");
  }
  static absl::Status Record(cudaEvent_t event, cudaStream_t stream) {
    return ToStatus(cudaEventRecord(event, stream), "an event");
  }
  static absl::Status WaitFor(cudaEvent_t (&ends)[2]) {
    for (cudaEvent_t end : ends) {
      absl::Status status = ToStatus(cudaEventSynchronize(end), "a round");
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const PcieLoad load_;
  Way up_, down_;
  cudaEvent_t ends_[kUnderWay][2] = {};
  int64_t rounds_ = 0;
};

absl::StatusOr<double> MeasureAlone(Pair& pair) {
  std::vector<double> seconds;
  for (int n = 0; n < kAloneRounds; ++n) {
    absl::Status status;
    seconds.push_back(Time([&] { status = pair.Alone(); }));
    if (!status.ok()) return status;
  }
  return Median(std::move(seconds));
}

}  // namespace

absl::Status PcieLoad::Validate() const {
  if (device < 0) return absl::InvalidArgumentError("device: below 0");
  if (up_bytes < 0 || down_bytes < 0 || up_bytes + down_bytes == 0) {
    return absl::InvalidArgumentError("up_bytes, down_bytes: nothing to move");
  }
  if (pairs < 1) return absl::InvalidArgumentError("pairs: must be positive");
  if (time <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("time: must be positive");
  }
  return absl::OkStatus();
}

absl::StatusOr<PcieRates> MeasurePcie(const PcieLoad& load) {
  if (absl::Status s = load.Validate(); !s.ok()) return s;
  if (absl::Status s = cuda::UseDevice(load.device); !s.ok()) return s;
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int n = 0; n < load.pairs; ++n) {
    pairs.push_back(std::make_unique<Pair>(load));
    if (absl::Status s = pairs.back()->Make(); !s.ok()) return s;
  }
  PcieRates rates;
  const absl::StatusOr<double> alone = MeasureAlone(*pairs.front());
  if (!alone.ok()) return alone.status();
  rates.alone_seconds = *alone;
  const double start = Seconds();
  const double end = start + absl::ToDoubleSeconds(load.time);
  while (Seconds() < end) {
    for (const auto& pair : pairs) {
      if (absl::Status s = pair->Next(); !s.ok()) return s;
    }
  }
  for (const auto& pair : pairs) {
    if (absl::Status s = pair->Finish(); !s.ok()) return s;
    rates.rounds += pair->rounds();
  }
  rates.seconds = Seconds() - start;
  const double per_second =
      1e-9 * static_cast<double>(rates.rounds) / rates.seconds;
  rates.up_gb_s = per_second * static_cast<double>(load.up_bytes);
  rates.down_gb_s = per_second * static_cast<double>(load.down_bytes);
  rates.gb_s = rates.up_gb_s + rates.down_gb_s;
  return rates;
}

std::string ToJson(const PcieLoad& load, const PcieRates& rates) {
  return absl::StrFormat(
      "{\"memory\": \"%s\", \"device\": %d, \"up_bytes\": %d, "
      "\"down_bytes\": %d, \"pairs\": %d, \"rounds\": %d, \"seconds\": %.3f, "
      "\"up_gb_s\": %.2f, \"down_gb_s\": %.2f, \"gb_s\": %.2f, "
      "\"alone_us\": %.1f}",
      load.memory == HostKind::kMemfd ? "memfd" : "allocated", load.device,
      load.up_bytes, load.down_bytes, load.pairs, rates.rounds, rates.seconds,
      rates.up_gb_s, rates.down_gb_s, rates.gb_s, rates.alone_seconds * 1e6);
}

}  // namespace attnd::bench
