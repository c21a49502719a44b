#ifndef ATTND_SERVER_WORK_WORK_H_
#define ATTND_SERVER_WORK_WORK_H_

// One admitted request on its way through scheduler and lanes. A plain struct
// with a completion: a front (gRPC today) fills it and submits it, and nothing
// behind the scheduler knows what the front is.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/plan_kind.h"
#include "kernels/request.h"
#include "server/work/client_quota.h"
#include "server/work/output_pool.h"
#include "server/work/priority.h"
#include "server/work/region.h"
#include "server/work/tensor_source.h"

namespace attnd::server {

struct Phases {
  absl::Duration receive;  // admitted to the last chunk; of an Exchange
  absl::Duration queue;    // submitted to taken by a lane
  absl::Duration upload;   // the whole group's, as are the next two
  absl::Duration compute;
  absl::Duration download;
};

struct WorkResult {
  // Null: it is in no region.
  const ResultPlace* PlaceOf(TensorId tensor) const {
    for (const ResultPlace& place : placed) {
      if (place.tensor == tensor) return &place;
    }
    return nullptr;
  }

  PerTensor<OutputBuffer> outputs;  // empty where not wanted, or placed
  std::vector<ResultPlace> placed;  // as Work::placed says
  std::string device;               // see DeviceString
  KernelInfo kernel;
  int batch_requests = 1;
  Phases phases;
  std::optional<PlanReport> plan;  // the group's; of a team
};

struct Work {
  // Filled by the front.
  std::shared_ptr<const Request> request;
  PerTensor<TensorSource> inputs;
  // Where results go that are not sent.
  PerTensor<RegionBytes> placed;
  // Bit d: device d may run it, if it can: where its inputs lie, if they are on
  // a device already.
  uint64_t devices = ~uint64_t{0};
  // Called once, as soon as the inputs have been copied or are not needed.
  absl::AnyInvocable<void()> release_inputs;
  // Called once at most, when the device is at work and somebody will have to
  // wait for it: what answers may get ready meanwhile. Begins before `done`,
  // and may still run then, on another thread. Must not block.
  absl::AnyInvocable<void()> under_way;
  Priority priority = Priority::kNormal;
  std::string client;  // whose fair share this counts against
  ClientQuota quota;   // and what that client may have
  absl::Time deadline = absl::InfiniteFuture();  // of MonotonicNow()
  // Called exactly once after a successful Submit, on a lane's thread, one
  // that submits, cancels or drains; must not block. Errors: what the backend
  // said (its device broke), RESOURCE_EXHAUSTED with RetryInfo (no memory on
  // the device), CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE (drained, or no
  // device left).
  absl::AnyInvocable<void(absl::StatusOr<WorkResult>)> done;

  // Anyone may cancel; see Scheduler::Cancel.
  CancelToken cancel;

  // The scheduler's own.
  uint64_t id = 0;
  std::optional<PlanChoice> plan;  // Footprint::plan
  absl::Time admitted;
  double cost_flops = 0;   // Footprint::flops; once paused, what is left of it
  int64_t cost_bytes = 0;  // Footprint::moved_bytes
  std::shared_ptr<Charge> charge;  // its bytes on the account
};

using WorkPtr = std::shared_ptr<Work>;

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_WORK_H_
