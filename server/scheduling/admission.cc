#include "server/scheduling/admission.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

int64_t SaturatingAdd(int64_t a, int64_t b) {
  return a > kMost - b ? kMost : a + b;
}

absl::Status TooLarge(absl::string_view why) {
  return Refused(CallRefusal::kTooLarge, absl::InvalidArgumentError(why));
}

// What a request takes on one device.
struct DeviceCost {
  int64_t scratch_bytes = 0;
  double flops = 0;
};

// Adds what `problem` takes on device `device` to `cost`, or clears the
// device's bit in `footprint.devices` if it has no kernel.
void MeasureProblem(const Backend& backend, int device, Op op,
                    const Problem& problem, const GroupOptions& options,
                    Footprint& footprint, DeviceCost& cost, absl::Status& why) {
  const uint64_t bit = uint64_t{1} << device;
  if ((footprint.devices & bit) == 0) return;
  absl::Status status = backend.Supports(op, problem, options);
  if (!status.ok()) {
    footprint.devices &= ~bit;
    why = std::move(status);
    return;
  }
  const int64_t scratch_bytes = backend.ScratchBytes(op, problem, options);
  // What a team's members have of a request they have at once.
  cost.scratch_bytes = backend.device().members > 0
                           ? SaturatingAdd(cost.scratch_bytes, scratch_bytes)
                           : std::max(cost.scratch_bytes, scratch_bytes);
  // The FLOPs of kAuto were counted with the request.
  if (options.algorithm != Algorithm::kAuto) {
    cost.flops += backend.CostFlops(op, problem, options);
  }
}

constexpr absl::string_view kNoDeviceReaches =
    "no device that runs it so reaches the memory that tensors lie in";

// Whether `plan` is for a team alone.
bool NeedsTeam(PlanKind plan) {
  return plan != PlanKind::kAuto && plan != PlanKind::kOneDevice;
}

bool IsTeam(const Backend* backend) { return backend->device().members > 0; }

// INVALID_ARGUMENT if `plan` is for a team and `backends` have none.
absl::Status CheckPlan(PlanKind plan, absl::Span<Backend* const> backends) {
  if (!NeedsTeam(plan) ||
      std::any_of(backends.begin(), backends.end(), IsTeam)) {
    return absl::OkStatus();
  }
  return FieldError("options.plan", "this server has no team of devices");
}

// INVALID_ARGUMENT if it takes more than `limit` bytes, which are `whose`.
absl::Status CheckFits(const Footprint& footprint, int64_t scratch_bytes,
                       int64_t bytes, int64_t limit, absl::string_view whose) {
  if (bytes <= limit) return absl::OkStatus();
  const std::string description = absl::StrCat(
      "the request takes ", bytes, " bytes (inputs ", footprint.input_bytes,
      ", outputs ", footprint.output_bytes, ", scratch ", scratch_bytes,
      "), more than the ", whose, " of ", limit);
  // When it is the algorithm's own doing, say which field to change.
  if (bytes - scratch_bytes <= limit) {
    return Refused(CallRefusal::kTooLarge,
                   FieldError("options.algorithm", description));
  }
  return TooLarge(description);
}

// Clears the device's bit if it has not the memory, even when it is empty.
void CheckDeviceMemory(const DeviceInfo& device, uint64_t bit,
                       int64_t scratch_bytes, Footprint& footprint) {
  const int64_t bytes = SaturatingAdd(
      SaturatingAdd(footprint.input_bytes, footprint.output_bytes),
      scratch_bytes);
  absl::Status fits =
      CheckFits(footprint, scratch_bytes, bytes, device.memory_bytes,
                absl::StrCat("memory of ", device.kind));
  if (fits.ok()) return;
  footprint.devices &= ~bit;
  footprint.too_large = std::move(fits);
}

std::vector<const Problem*> ProblemsOf(const BoundRequest& bound) {
  std::vector<const Problem*> problems;
  problems.reserve(bound.segments.size());
  for (const ForwardArgs& args : bound.forward) {
    problems.push_back(&args.problem);
  }
  for (const BackwardArgs& args : bound.backward) {
    problems.push_back(&args.problem);
  }
  return problems;
}

uint64_t Teams(absl::Span<Backend* const> backends) {
  uint64_t teams = 0;
  for (size_t i = 0; i < backends.size(); ++i) {
    if (IsTeam(backends[i])) teams |= uint64_t{1} << i;
  }
  return teams;
}

// Of `teams`, the first one that should run a request about which nobody has
// said how, and by which plan; none if one device should.
uint64_t FindTeam(absl::Span<Backend* const> backends, uint64_t teams,
                  const Request& request, const GroupOptions& options,
                  absl::Span<const Problem* const> problems,
                  std::optional<PlanChoice>& plan) {
  if (request.spec().algorithm != Algorithm::kAuto) return 0;
  for (size_t i = 0; i < backends.size(); ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if ((teams & bit) == 0) continue;
    plan = backends[i]->ChoosePlan(request.spec().op, request.flops(), options,
                                   problems);
    if (plan.has_value()) return bit;
  }
  return 0;
}

// Finds out which of `devices` can run it, and what that takes. Not OK: why one
// of them has no kernel.
absl::Status MeasureOn(absl::Span<Backend* const> backends, uint64_t devices,
                       Op op, absl::Span<const Problem* const> problems,
                       Footprint& footprint) {
  absl::Status why;
  for (int device = 0; device < backends.size(); ++device) {
    const uint64_t bit = uint64_t{1} << device;
    if ((devices & bit) == 0) continue;
    footprint.devices |= bit;
    DeviceCost cost;
    for (const Problem* problem : problems) {
      MeasureProblem(*backends[device], device, op, *problem,
                     footprint.key.options, footprint, cost, why);
    }
    if ((footprint.devices & bit) == 0) continue;
    footprint.scratch_bytes =
        std::max(footprint.scratch_bytes, cost.scratch_bytes);
    footprint.flops = std::max(footprint.flops, cost.flops);
    CheckDeviceMemory(backends[device]->device(), bit, cost.scratch_bytes,
                      footprint);
  }
  return why;
}

// What describing a request takes beside its tensors, rounded up: itself, a
// problem with its segment and a kernel's notes on both, a length or start.
constexpr int64_t kRequestBytes = 4096;
constexpr int64_t kProblemBytes = 1024;
constexpr int64_t kListEntryBytes = 16;

}  // namespace

int64_t Footprint::bytes() const {
  return SaturatingAdd(moved_bytes(), scratch_bytes);
}

int64_t Footprint::moved_bytes() const {
  return SaturatingAdd(SaturatingAdd(input_bytes, output_bytes), host_bytes);
}

absl::StatusOr<Footprint> Measure(const Request& request,
                                  absl::Span<Backend* const> backends,
                                  const Placement& placement) {
  const RequestSpec& spec = request.spec();
  if (absl::Status status = CheckPlan(spec.plan, backends); !status.ok()) {
    return status;
  }
  Footprint footprint;
  footprint.key = {spec.op, request.input(TensorId::kQ).spec.dtype,
                   request.input(TensorId::kQ).spec.shape.back(),
                   request.input(TensorId::kV).spec.shape.back(),
                   OptionsOf(spec)};
  // A device that is no team looks at no plan: what names it may share a group
  // with what names none.
  if (spec.plan == PlanKind::kOneDevice) {
    footprint.key.options.plan = PlanKind::kAuto;
  }
  footprint.input_bytes = DeviceInputBytes(request, placement);
  footprint.output_bytes = PooledOutputBytes(request, placement);
  footprint.flops = request.flops();

  const std::unique_ptr<BoundRequest> bound = request.Bind({}, nullptr);
  const auto lists = spec.q_lens.size() + spec.kv_lens.size() +
                     spec.q_start.size() + spec.kv_start.size();
  footprint.host_bytes = kRequestBytes +
                         kProblemBytes * bound->segments.size() +
                         kListEntryBytes * lists;
  const std::vector<const Problem*> problems = ProblemsOf(*bound);
  const uint64_t teams = Teams(backends) & placement.devices;
  uint64_t asked = placement.devices & ~teams;
  if (NeedsTeam(spec.plan)) {
    asked = teams;
  } else if (spec.plan == PlanKind::kAuto) {
    asked = FindTeam(backends, teams, request, footprint.key.options, problems,
                     footprint.plan);
    if (asked != 0) {
      footprint.key.options.plan = footprint.plan->kind;
      MeasureOn(backends, asked, spec.op, problems, footprint).IgnoreError();
    }
    // A team that it does not fit leaves it to one device.
    if (footprint.devices != 0) return footprint;
    footprint.key.options.plan = PlanKind::kAuto;
    footprint.plan.reset();
    footprint.too_large = absl::OkStatus();
    asked = placement.devices & ~teams;
  }
  const absl::Status why =
      MeasureOn(backends, asked, spec.op, problems, footprint);
  if (footprint.devices == 0 && footprint.too_large.ok()) {
    // Where no device was asked, the plan leaves none.
    return why.ok() ? FieldError("options.plan", kNoDeviceReaches) : why;
  }
  return footprint;
}

absl::Status CheckEverFits(const Footprint& footprint,
                           const SchedulerOptions& options) {
  if (footprint.flops > options.max_request_flops) {
    return TooLarge(absl::StrCat("the request costs ", footprint.flops,
                                 " FLOPs, more than the limit of ",
                                 options.max_request_flops,
                                 " for one request"));
  }
  absl::Status fits =
      CheckFits(footprint, footprint.scratch_bytes, footprint.bytes(),
                options.memory_bytes, "memory limit");
  if (!fits.ok() || footprint.devices != 0) return fits;
  return footprint.too_large;
}

absl::Status CheckEverAllowed(const Footprint& footprint,
                              const ClientQuota& quota) {
  if (quota.queue_flops > 0 && footprint.flops > quota.queue_flops) {
    return TooLarge(absl::StrCat(
        "the request costs ", footprint.flops, " FLOPs, more than the ",
        quota.queue_flops,
        " that the client may have in the queue (--max_client_queue_flops)"));
  }
  if (quota.queue_bytes > 0 && footprint.bytes() > quota.queue_bytes) {
    return TooLarge(
        absl::StrCat("the request takes ", footprint.bytes(),
                     " bytes, more than the ", quota.queue_bytes,
                     " that the client may hold (--max_client_queue_bytes)"));
  }
  return absl::OkStatus();
}

bool MayRunHere(const Footprint& footprint, const SchedulerOptions& options) {
  return footprint.key.options.algorithm == Algorithm::kAuto &&
         footprint.flops <= options.run_here_flops &&
         footprint.moved_bytes() <= kRunHereBytes;
}

bool MayBeginHere(const Work& work, bool shares_host_memory) {
  if (shares_host_memory) return false;
  int64_t bytes = 0;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (std::holds_alternative<HostPieces>(work.inputs[id])) {
      bytes += work.request->input(id).bytes;
    }
    if (work.placed[id].region == nullptr) {
      bytes += work.request->output(id).bytes;
    }
  }
  return bytes <= kRunHereBytes;
}

void RateEstimate::Add(double cost, absl::Duration elapsed) {
  if (elapsed <= absl::ZeroDuration()) return;
  const double rate = cost / absl::ToDoubleSeconds(elapsed);
  // Old groups count for less: about the last eight.
  cost_per_second_ =
      cost_per_second_ == 0 ? rate : cost_per_second_ * 0.875 + rate * 0.125;
}

absl::Duration RateEstimate::RetryDelay(double cost, int lanes) const {
  constexpr absl::Duration kLeast = absl::Milliseconds(10);
  constexpr absl::Duration kMostDelay = absl::Seconds(5);
  if (cost_per_second_ == 0) return absl::Milliseconds(100);
  const absl::Duration needed =
      absl::Seconds(cost / (cost_per_second_ * std::max(1, lanes)));
  return std::clamp(needed, kLeast, kMostDelay);
}

}  // namespace attnd::server
