#ifndef ATTND_SERVER_SCHEDULING_ADMISSION_H_
#define ATTND_SERVER_SCHEDULING_ADMISSION_H_

// What a request would take, whether it may ever run here, and whether there is
// room for it now.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/request.h"
#include "server/scheduling/options.h"
#include "server/work/group_key.h"
#include "server/work/request_bytes.h"

namespace attnd::server {

// Known before a request is queued.
struct Footprint {
  GroupKey key;
  uint64_t devices = 0;  // bit d: backends[d] can run it
  // What a team chose where nobody has said how the request is to run. It
  // follows from the request alone, or bits would depend on the group.
  std::optional<PlanChoice> plan;
  // INVALID_ARGUMENT if a device has a kernel, but even empty not the memory.
  absl::Status too_large;
  int64_t input_bytes = 0;
  int64_t scratch_bytes = 0;  // the most that any of these devices needs
  int64_t output_bytes = 0;
  // Its description: the request, and a problem for each packed sequence, of
  // which a small message can ask for thousands.
  int64_t host_bytes = 0;
  // What it costs, as Request::flops() counts; more with an algorithm other
  // than kAuto: see Backend::CostFlops, the most on any of these devices.
  double flops = 0;

  // At most int64's maximum.
  int64_t bytes() const;
  // The same without scratch: what is copied.
  int64_t moved_bytes() const;
};

// UNIMPLEMENTED when no backend of those that `placement` and the plan leave
// has a kernel. INVALID_ARGUMENT, naming options.plan: they leave none. At most
// 64 backends.
absl::StatusOr<Footprint> Measure(const Request& request,
                                  absl::Span<Backend* const> backends,
                                  const Placement& placement = {});

// INVALID_ARGUMENT, naming the limit, when it could not run even alone, on any
// device.
absl::Status CheckEverFits(const Footprint& footprint,
                           const SchedulerOptions& options);
// The same, when its client may not have so much even alone.
absl::Status CheckEverAllowed(const Footprint& footprint,
                              const ClientQuota& quota);

// Whether it may run on the thread that submits it: see
// SchedulerOptions::run_here_flops.
bool MayRunHere(const Footprint& footprint, const SchedulerOptions& options);

// Whether the thread that submits it may begin it, for a lane to go on with: a
// device that does what it is told by itself is to run it, and few bytes of it
// go through the hands of whoever does.
bool MayBeginHere(const Work& work, bool shares_host_memory);

// How fast work gets done, and so when a full queue has room again. Not
// thread-safe.
class RateEstimate {
 public:
  // A lane was busy for `elapsed` with `cost`.
  void Add(double cost, absl::Duration elapsed);
  // Until `lanes` lanes have done `cost`: 10 ms to 5 s.
  absl::Duration RetryDelay(double cost, int lanes) const;

 private:
  double cost_per_second_ = 0;  // of one lane, recent
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_ADMISSION_H_
