#include "kernels/plan/predict.h"

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/tiles.h"

namespace attnd::plan {
namespace {

// Of a slice of some buffers, each read or written once.
double BytesOf(const PlanRequest& request, const Plan& plan, const Slice& slice,
               absl::Span<const int> buffers) {
  double bytes = 0;
  for (const int buffer : buffers) {
    const Buffer& b = plan.buffers[buffer];
    bytes += static_cast<double>(SliceBytes(request, b.tensor, b.dtype, slice));
  }
  return bytes;
}

double BytesOf(const PlanRequest& request, const Plan& plan, const Pull& pull) {
  double bytes = 0;
  for (const Pull::Item& item : pull.items) {
    bytes += BytesOf(request, plan, item.slice, {item.to});
  }
  return bytes;
}

double BytesOf(const PlanRequest& request, const Plan& plan, const Sum& sum) {
  std::vector<int> buffers = sum.terms;
  buffers.push_back(sum.to);
  return BytesOf(request, plan, sum.slice, buffers);
}

double BytesOf(const PlanRequest& request, const Plan& plan,
               const Merge& merge) {
  std::vector<int> buffers;
  for (const State& term : merge.terms) {
    buffers.push_back(term.lse);
    if (term.o.has_value()) buffers.push_back(*term.o);
  }
  for (const std::optional<int>& to : {merge.o, merge.lse}) {
    if (to.has_value()) buffers.push_back(*to);
  }
  return BytesOf(request, plan, merge.slice, buffers);
}

// Plays the steps through.
class Player {
 public:
  Player(const PlanRequest& request, const Plan& plan)
      : request_(request),
        plan_(plan),
        rates_(request.rates),
        ends_(plan.steps.size()),
        enqueued_(plan.steps.size()),
        devices_(plan.devices, Device{rates_.team_seconds / 2}) {}

  double Play() {
    double last = 0;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      Device& device = devices_[step.device];
      if (!TakesTime(step)) continue;
      double ready = 0;
      for (const int other : step.after) {
        ready = std::max(ready, ends_[other]);
        device.host = std::max(device.host, enqueued_[other]);
      }
      device.host += HostSeconds(step);
      enqueued_[i] = device.host;
      ends_[i] = std::visit(
          [&](const auto& what) {
            return End(device, std::max(ready, device.host), what);
          },
          step.what);
      last = std::max(last, ends_[i]);
    }
    return last + rates_.team_seconds / 2;
  }

 private:
  // When each of its parts is free.
  struct Device {
    double host = 0;
    double upload = 0, pull = 0, own = 0, compute = 0, download = 0;
  };

  // What a step takes its device's thread.
  double HostSeconds(const Step& step) const {
    return rates_.step_seconds +
           std::visit([this](const auto& what) { return Enqueueing(what); },
                      step.what);
  }
  double Enqueueing(const Upload&) const {
    return rates_.upload.enqueue_seconds;
  }
  double Enqueueing(const Download&) const {
    return rates_.download.enqueue_seconds;
  }
  double Enqueueing(const Pull& pull) const {
    return static_cast<double>(pull.items.size()) * rates_.pull.enqueue_seconds;
  }
  double Enqueueing(const Compute& compute) const {
    return KernelOf(compute).enqueue_seconds;
  }
  template <class What>  // a dot, a sum or a merge
  double Enqueueing(const What&) const {
    return rates_.forward.enqueue_seconds;
  }

  const DeviceRates::Kernel& KernelOf(const Compute& compute) const {
    return IsDecode(request_, compute) ? rates_.decode
                                       : KernelRatesOf(request_);
  }

  bool TakesTime(const Step& step) const {
    if (const auto* upload = std::get_if<Upload>(&step.what)) {
      return request_.inputs == InputsLie::kOnHost && !upload->lies_there;
    }
    if (std::holds_alternative<Download>(step.what)) {
      return request_.inputs == InputsLie::kOnHost;
    }
    return true;
  }

  static double Copy(double& free, double ready, const DeviceRates::Link& link,
                     double bytes, double copies = 1) {
    free =
        std::max(free, ready) + bytes / link.bytes + copies * link.copy_seconds;
    return free + link.seconds;
  }
  // For what the buffer holds: some heads of each token lie apart on the host.
  DeviceRates::Link OfHost(DeviceRates::Link link, int buffer) const {
    const Buffer& b = plan_.buffers[buffer];
    const ProblemShape& shape = request_.ProblemOf(b.slice.sequence);
    const int64_t row_bytes =
        b.slice.heads * TokenElements(shape, b.tensor) * SizeOf(b.dtype);
    const int64_t heads = HasColumns(b.tensor) ? shape.kv_heads : shape.q_heads;
    if (b.slice.heads < heads && TokenElements(shape, b.tensor) > 1 &&
        row_bytes < rates_.short_row_bytes) {
      link.bytes *= rates_.short_rows;
    }
    return link;
  }
  double Use(Device& device, double ready, double bytes) const {
    device.compute =
        std::max(device.compute, ready + rates_.forward.launch_seconds) +
        rates_.kernel_seconds + bytes / rates_.memory_bytes;
    return device.compute;
  }

  // Of a slice, by that link, whose tokens lie so many apart at either end.
  DeviceRates::Link For(DeviceRates::Link link, const Slice& slice,
                        int64_t from, int64_t to) const {
    if (slice.tokens.step != from || slice.tokens.step != to) {
      link.copy_seconds += rates_.apart_seconds;
    }
    return link;
  }
  int64_t StepOf(int buffer) const {
    return plan_.buffers[buffer].slice.tokens.step;
  }

  double End(Device& device, double ready, const Upload& upload) {
    return Copy(device.upload, ready,
                For(OfHost(rates_.upload, upload.to), upload.slice, 1,
                    StepOf(upload.to)),
                BytesOf(request_, plan_, upload.slice, {upload.to}));
  }
  double End(Device& device, double ready, const Download& download) {
    return Copy(device.download, ready,
                For(OfHost(rates_.download, download.from), download.slice,
                    StepOf(download.from), 1),
                BytesOf(request_, plan_, download.slice, {download.from}));
  }
  double End(Device& device, double ready, const Pull& pull) {
    const double bytes = BytesOf(request_, plan_, pull);
    const auto copies = static_cast<double>(pull.items.size());
    const Pull::Item& first = pull.items.front();
    const int64_t from = StepOf(first.from), to = StepOf(first.to);
    if (&devices_[pull.peer] == &device) {  // read and written
      const DeviceRates::Link own = {rates_.pull.seconds / 2,
                                     rates_.memory_bytes / 2,
                                     2 * rates_.pull.copy_seconds};
      return Copy(device.own, ready, For(own, first.slice, from, to), bytes,
                  copies);
    }
    return Copy(device.pull, ready, For(rates_.pull, first.slice, from, to),
                bytes, copies);
  }
  double End(Device& device, double ready, const Compute& compute) {
    const LaunchSeconds seconds = SecondsOf(request_, plan_, compute);
    const double start =
        std::max(device.compute, ready + KernelOf(compute).launch_seconds);
    device.compute = start + seconds.busy;
    return start + seconds.until_done;
  }
  double End(Device& device, double ready, const Dot& dot) {
    return Use(
        device, ready,
        BytesOf(request_, plan_, dot.slice, {dot.d_o, dot.o, dot.delta}));
  }
  double End(Device& device, double ready, const Sum& sum) {
    return Use(device, ready, BytesOf(request_, plan_, sum));
  }
  double End(Device& device, double ready, const Merge& merge) {
    return Use(device, ready, BytesOf(request_, plan_, merge));
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const DeviceRates& rates_;
  std::vector<double> ends_, enqueued_;  // by step
  std::vector<Device> devices_;
};

}  // namespace

absl::Duration Predict(const PlanRequest& request, const Plan& plan) {
  return absl::Seconds(Player(request, plan).Play());
}

}  // namespace attnd::plan
