#ifndef ATTND_TESTS_SERVER_FAKES_IDENTITY_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_IDENTITY_BACKEND_H_

// A device that computes nothing: O is Q's bytes (0 where shapes or types
// differ), LSE is 0, and dQ, dK, dV are Q's, K's and V's. What is left is
// copying, so it shows what transport and scheduling cost, and other fakes
// build on it. Memory that is imported is a memfd's.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/backend.h"

namespace attnd::server {

// Counts what it gave out; may be told to run out.
class CountingHostMemory : public HostMemory {
 public:
  std::byte* Allocate(int64_t bytes) override;
  void Free(std::byte* memory, int64_t bytes) override;

  int64_t live_bytes() const { return live_bytes_; }
  int64_t allocations() const { return allocations_; }
  void set_limit_bytes(int64_t bytes) { limit_bytes_ = bytes; }

 private:
  std::atomic<int64_t> live_bytes_{0};
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> limit_bytes_{int64_t{1} << 60};
};

class IdentityBackend : public Backend {
 public:
  // What a stream is about to do.
  enum class Stage {
    kAllocate,
    kMapOutput,
    kUpload,
    kUse,
    kRun,
    kDownload,
    kWaitFor,
    kWait
  };
  // The problems of a kRun; empty otherwise.
  using Group = absl::Span<const Problem* const>;

  explicit IdentityBackend(int index = 0);

  const DeviceInfo& device() const override { return device_; }
  std::shared_ptr<HostMemory> host_memory() override { return memory_; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override;
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(
      int64_t bytes) override;
  absl::Status Pin(HostSpan memory) override;
  void Unpin(HostSpan memory) override;
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Import(int fd,
                                                       int64_t bytes) override;
  absl::Status Supports(Op op, const Problem& problem,
                        const GroupOptions& options) const override;
  KernelInfo Kernel(Op op, const Problem& problem,
                    const GroupOptions& options) const override;
  int64_t ScratchBytes(Op op, const Problem& problem,
                       const GroupOptions& options) const override;
  double CostFlops(Op op, const Problem& problem,
                   const GroupOptions& options) const override;

  CountingHostMemory& memory() { return *memory_; }
  // What is pinned, and how often something was.
  int64_t pinned_bytes() const { return pinned_bytes_; }
  int64_t pins() const { return pins_; }
  // From now on Pin fails with it, or no longer.
  void set_pin_error(const absl::Status& error);
  // Mapped by Import, and not yet unmapped.
  int64_t imported_bytes() const { return *imported_bytes_; }

  // Called by streams, on their threads, before each stage.
  virtual absl::Status On(Stage stage, Group group);
  // Called by Proceed for the group of the last kRun, of which `share` is done:
  // the share that is done then.
  virtual absl::StatusOr<double> OnProceed(Group group, double share,
                                           absl::FunctionRef<bool()> pause);
  // What streams say when they are asked whether all is over.
  virtual bool IsOver() { return true; }
  // What they say, once they have waited, that a group of `options` ran as.
  virtual std::optional<PlanReport> ReportOf(const GroupOptions& /*options*/) {
    return std::nullopt;
  }

 private:
  DeviceInfo device_;
  std::shared_ptr<CountingHostMemory> memory_;
  std::atomic<int64_t> pinned_bytes_{0}, pins_{0};
  std::shared_ptr<std::atomic<int64_t>> imported_bytes_;
  Mutex mutex_;
  absl::Status pin_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_IDENTITY_BACKEND_H_
