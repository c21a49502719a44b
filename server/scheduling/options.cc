#include "server/scheduling/options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/scheduling/option_range.h"

namespace attnd::server {
namespace {

constexpr double kMostFlops = 1e18;

// Also refuses what is no number.
absl::Status FlopsInRange(absl::string_view flag, double value) {
  if (value >= 0 && value <= kMostFlops) return absl::OkStatus();
  return BadOption(flag,
                   absl::StrCat("must be 0 to ", kMostFlops, ", is ", value));
}

absl::Status Must(bool holds, absl::string_view option,
                  absl::string_view range) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(option, " must be ", range));
}

}  // namespace

absl::Status SchedulerOptions::Validate() const {
  absl::Status status =
      InRange("--max_queue_requests", max_queue_requests, 1, int64_t{1} << 20);
  status.Update(FlopsInRange("--max_batch_flops", max_batch_flops));
  status.Update(FlopsInRange("--small_request_flops", small_request_flops));
  status.Update(InRange("--small_request_bytes", small_request_bytes, 0,
                        int64_t{1} << 50));
  status.Update(FlopsInRange("--run_here_flops", run_here_flops));
  status.Update(InRange("--lanes", lanes_per_device, 1, 64));
  status.Update(InRange("--max_batch_requests", max_batch_requests, 1, 4096));
  status.Update(InRange("--max_batch_delay", max_batch_delay,
                        absl::ZeroDuration(), absl::Seconds(10)));
  status.Update(InRange("--slice_time", slice_time, absl::Milliseconds(1),
                        absl::Seconds(10)));
  status.Update(Must(memory_bytes >= 1, "memory_bytes", "at least 1"));
  status.Update(Must(max_queue_flops > 0, "max_queue_flops", "positive"));
  status.Update(
      Must(max_request_flops > 0 && max_request_flops <= max_queue_flops,
           "max_request_flops", "positive and at most max_queue_flops"));
  status.Update(
      Must(max_idle_output_bytes >= 0, "max_idle_output_bytes", "at least 0"));
  return status;
}

}  // namespace attnd::server
