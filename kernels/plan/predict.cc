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
    bytes += static_cast<double>(
        SliceBytes(request, b.tensor, b.dtype, slice));
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
      device.host += rates_.step_seconds + copies_ * rates_.copy_seconds;
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
    double upload = 0, pull = 0, compute = 0, download = 0;
  };

  // What it takes to enqueue it is found on the way.
  bool TakesTime(const Step& step) {
    copies_ = 1;
    if (const auto* upload = std::get_if<Upload>(&step.what)) {
      return request_.inputs == InputsLie::kOnHost && !upload->lies_there;
    }
    if (std::holds_alternative<Download>(step.what)) {
      return request_.inputs == InputsLie::kOnHost;
    }
    if (const auto* pull = std::get_if<Pull>(&step.what)) {
      copies_ = static_cast<double>(pull->items.size());
    }
    return true;
  }

  double Copy(double& free, double ready, const DeviceRates::Link& link,
              double bytes) const {
    free = std::max(free, ready) + bytes / link.bytes;
    return free + link.seconds;
  }
  double Use(Device& device, double ready, double bytes) const {
    device.compute = std::max(device.compute, ready + rates_.launch_seconds) +
                     bytes / rates_.memory_bytes;
    return device.compute;
  }

  double End(Device& device, double ready, const Upload& upload) {
    return Copy(device.upload, ready, rates_.upload,
                BytesOf(request_, plan_, upload.slice, {upload.to}));
  }
  double End(Device& device, double ready, const Download& download) {
    return Copy(device.download, ready, rates_.download,
                BytesOf(request_, plan_, download.slice, {download.from}));
  }
  double End(Device& device, double ready, const Pull& pull) {
    const double bytes = BytesOf(request_, plan_, pull);
    if (&devices_[pull.peer] == &device) {  // read and written
      return Copy(device.pull, ready, {0, rates_.memory_bytes}, 2 * bytes);
    }
    return Copy(device.pull, ready, rates_.pull, bytes);
  }
  double End(Device& device, double ready, const Compute& compute) {
    const LaunchSeconds seconds = SecondsOf(request_, plan_, compute);
    const double start =
        std::max(device.compute, ready + rates_.launch_seconds);
    device.compute = start + seconds.busy;
    return start + seconds.until_done;
  }
  double End(Device& device, double ready, const Dot& dot) {
    return Use(device, ready,
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
  double copies_ = 0;  // of the step
};

}  // namespace

absl::Duration Predict(const PlanRequest& request, const Plan& plan) {
  return absl::Seconds(Player(request, plan).Play());
}

}  // namespace attnd::plan
