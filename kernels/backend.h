#ifndef ATTND_KERNELS_BACKEND_H_
#define ATTND_KERNELS_BACKEND_H_

// What a device looks like to whoever schedules work on it. A Backend is one
// device; a Stream is one queue of work on it, used by one thread at a time:
//
//   in  = stream.Allocate(bytes)        device memory until Reset
//   stream.Upload(host spans, in)       host spans may go once it returns
//   out = stream.MapOutput(host)        what kernels write
//   stream.Forward(group, options)      one group of unlike problems
//   stream.Download(out, host)
//   times = stream.Wait()               everything above has happened
//   stream.Reset()
//
// A group that takes long runs in slices: Forward may leave a part of it for
// Proceed, between whose calls the stream may lie idle, and other streams run.
// Inputs may also lie in a DeviceBuffer, which outlives a batch and which any
// thread fills, or in host memory of the caller's that was pinned: see Pin. And
// results may be fetched one by one: see Mark.
//
// A device that shares the host's memory maps outputs to themselves, and its
// Download does nothing. Every call may only enqueue; errors of enqueued work
// surface in Wait. RESOURCE_EXHAUSTED from Allocate, MapOutput, Forward and
// Backward: no memory now, and nothing was enqueued; fewer problems at once may
// fit. Any other error, and any from another call, means that the device is
// broken.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cut_unit.h"
#include "kernels/device_rates.h"
#include "kernels/plan_kind.h"

namespace attnd {

using HostSpan = absl::Span<std::byte>;
using ConstHostSpan = absl::Span<const std::byte>;

// Every tensor in device or host memory starts at a multiple of this.
inline constexpr int64_t kTensorAlignment = 256;

// The caller's memory is pinned in pieces no larger than this, which begin at
// multiples of it: pinning holds a lock of the driver, and so stops others, for
// as long as its piece takes, 1.2 ms for this much. Copies end at its
// multiples, too, which costs them one in fifty of their speed; with a quarter
// of it one in fifteen (H100).
inline constexpr int64_t kPinnedPieceBytes = int64_t{16} << 20;

// How a group runs; part of what its members must have in common.
struct GroupOptions {
  Algorithm algorithm = Algorithm::kAuto;
  bool deterministic = false;
  // Of a team of devices (team/team.h), which never gets kOneDevice; another
  // device is one, and does not look.
  PlanKind plan = PlanKind::kAuto;

  friend bool operator==(const GroupOptions&, const GroupOptions&) = default;
};

struct DeviceInfo {
  std::string kind;  // "cpu", "cuda", "team"
  std::string name;  // as the vendor calls it
  int index = 0;     // among devices of its kind
  int64_t memory_bytes = 0;
  // Kernels read host memory where it lies, so that any of it can be a
  // DeviceBuffer's: see host_buffer.h.
  bool shares_host_memory = false;
  // 16 bytes that tell this GPU from every other; empty: it is none.
  std::string uuid;
  // The node of the host's memory that is next to it; -1: unknown, or any.
  int numa_node = -1;
  // Of a team: how many devices it is. 0: it is one.
  int members = 0;
};

// What a group ran as, for reports.
struct KernelInfo {
  Algorithm algorithm = Algorithm::kAuto;  // never kAuto in a report
  std::string name;                        // e.g. "cpu/flash/avx3"
};

// Device time since the last Wait.
struct PhaseTimes {
  absl::Duration upload;
  absl::Duration compute;
  absl::Duration download;
};

// Memory on a device that belongs to no stream: where inputs lie that arrive
// before there is a lane for them. Kept by every stream that uses it until that
// is Reset.
//
// It may also be another process' memory: see Backend::Import. Kernels then
// write results into it, too, and what they read may change under them.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;

  // Aligned to kTensorAlignment. What kernels read; the host may only where the
  // device shares its memory.
  virtual std::byte* data() const = 0;
  // Copies `from`, one span after another, to `offset` bytes from the start.
  // The spans may go once it returns. Thread-safe where ranges do not overlap.
  // Errors: the device is broken.
  virtual absl::Status Write(int64_t offset,
                             absl::Span<const ConstHostSpan> from) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes) = 0;
  virtual absl::StatusOr<std::byte*> MapOutput(HostSpan host) = 0;
  virtual absl::Status Upload(absl::Span<const ConstHostSpan> from,
                              std::byte* to) = 0;
  // As Upload, from pinned memory, which must stay as long as a Wait that
  // follows has not returned, or the stream has not gone. The host does not
  // touch a byte of it.
  virtual absl::Status UploadPinned(ConstHostSpan from, std::byte* to) = 0;
  // All problems of a group share op, dtype, head_dim and value_dim, and are
  // valid (see request.h) and supported.
  virtual absl::Status Forward(absl::Span<const ForwardArgs> group,
                               const GroupOptions& options) = 0;
  virtual absl::Status Backward(absl::Span<const BackwardArgs> group,
                                const GroupOptions& options) = 0;
  // Goes on with what Forward or Backward began, whose `group` must have stayed
  // as it was, until all of it is enqueued or `pause` returns true. Returns the
  // share that is, from 0 to 1; below 1 it was paused, and may be called again,
  // on another thread too, with nothing else asked of the stream in between.
  // Results have the same bits as without a pause. `pause` is called between
  // slices, on any thread, and must not block.
  virtual absl::StatusOr<double> Proceed(absl::FunctionRef<bool()> /*pause*/) {
    return 1.0;
  }
  virtual absl::Status Download(const std::byte* from, HostSpan to) = 0;
  // What was written into `buffer` before this call is there for what is
  // enqueued after it.
  virtual absl::Status Use(std::shared_ptr<DeviceBuffer> buffer) = 0;
  // A point in what has been enqueued since the last Reset, from 0 on. WaitFor:
  // everything before it has happened.
  virtual absl::StatusOr<int> Mark() = 0;
  virtual absl::Status WaitFor(int mark) = 0;
  // Whether all that has been enqueued is over, for which it waits as long as
  // `time`. What went wrong is over, too: Wait says it.
  virtual bool EndsWithin(absl::Duration /*time*/) { return true; }
  virtual absl::StatusOr<PhaseTimes> Wait() = 0;
  // What the groups since the last Reset ran as, once Wait has returned; null
  // where one device alone ran them.
  virtual const PlanReport* plan_report() const { return nullptr; }
  virtual void Reset() = 0;
};

// What a device is doing for whoever uses it, this process or another.
struct DeviceUsage {
  // Part of the driver's last sampling period in which a kernel ran.
  std::optional<double> utilization;
  int64_t memory_used_bytes = 0;
  int64_t memory_total_bytes = 0;
};

class MemberStream;  // team/member_stream.h

// Host memory that the device reads and writes fastest. Thread-safe. What it
// gave out may be freed after its backend is gone.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // `bytes` > 0, aligned to kTensorAlignment; null when there is none.
  virtual std::byte* Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory, int64_t bytes) = 0;
};

// Thread-safe. Outlives its streams.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& device() const = 0;
  virtual std::shared_ptr<HostMemory> host_memory() = 0;  // never null
  // Empty: it cannot tell. Asks the driver, which of a device that is about to
  // fail may take seconds to answer.
  virtual std::optional<DeviceUsage> Usage() const { return std::nullopt; }
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  // The same, for a device that is one of several which share a request.
  // UNIMPLEMENTED: it cannot be.
  virtual absl::StatusOr<std::unique_ptr<MemberStream>> NewMemberStream();
  // `bytes` >= 0, uninitialised. RESOURCE_EXHAUSTED: no memory now.
  virtual absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(
      int64_t bytes) = 0;

  // Makes memory of the caller's, which neither moves nor goes before Unpin, as
  // fast to copy from and to as host_memory(), for every device of this one's
  // kind. `memory`: whole pages within one piece (kPinnedPieceBytes). Where the
  // device shares the host's memory there is nothing to do. Takes milliseconds,
  // during which other calls may wait. RESOURCE_EXHAUSTED: it cannot be.
  virtual absl::Status Pin(HostSpan memory) = 0;
  // The same span, with which no stream does anything any more.
  virtual void Unpin(HostSpan memory) = 0;
  // Memory of this device that another process has allocated and exported as
  // the file descriptor `fd`, which stays the caller's: all of its `bytes`. It
  // is unmapped when the buffer goes, wherever that is, and lives on as long as
  // its own process needs it. Write fails. INVALID_ARGUMENT: not such memory,
  // of another size or of another device; RESOURCE_EXHAUSTED: no room for it
  // now; UNIMPLEMENTED: the device cannot. None of these means that the device
  // is broken.
  virtual absl::StatusOr<std::shared_ptr<DeviceBuffer>> Import(
      int fd, int64_t bytes) = 0;

  // OK, or UNIMPLEMENTED: a valid problem that this device has no kernel for.
  // Looks at shapes, types and mask only, never at pointers.
  virtual absl::Status Supports(Op op, const Problem& problem,
                                const GroupOptions& options) const = 0;
  virtual KernelInfo Kernel(Op op, const Problem& problem,
                            const GroupOptions& options) const = 0;
  // Memory that running the problem takes beside its inputs and outputs. The
  // problems of one request take together no more than the largest of them.
  virtual int64_t ScratchBytes(Op op, const Problem& problem,
                               const GroupOptions& options) const = 0;
  // The work that running the problem takes, masked pairs that the algorithm
  // visits included, as FLOPs that kAuto's kernel would do in the same time.
  // For any algorithm but kAuto, whose work is Request::flops().
  virtual double CostFlops(Op op, const Problem& problem,
                           const GroupOptions& options) const = 0;
  virtual DeviceRates Rates() const { return {}; }
  // Of a team: by which plan it should run such a request, of so many FLOPs,
  // about which nobody has said how. None: one of its members should run it. A
  // function of the request and of the members alone, never of what they are
  // doing; costs next to nothing where there are few FLOPs.
  virtual std::optional<PlanChoice> ChoosePlan(
      Op /*op*/, double /*flops*/, const GroupOptions& /*options*/,
      absl::Span<const Problem* const> /*problems*/) const {
    return std::nullopt;
  }
  // Where forward of this one sequence (batch is 1, and there are no lists of
  // lengths) may be cut.
  virtual CutUnit Cut(const Problem& /*sequence*/,
                      const GroupOptions& /*options*/) const {
    return {};
  }
};

}  // namespace attnd

#endif  // ATTND_KERNELS_BACKEND_H_
