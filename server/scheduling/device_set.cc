#include "server/scheduling/device_set.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/host_buffer.h"
#include "server/scheduling/lane_roster.h"

namespace attnd::server {

DeviceSet::DeviceSet(const SchedulerOptions& options,
                     std::vector<Backend*> backends)
    : backends_(std::move(backends)),
      share_host_memory_(
          std::all_of(backends_.begin(), backends_.end(), [](Backend* backend) {
            return backend->device().shares_host_memory;
          })) {
  for (Backend* backend : backends_) {
    pools_.push_back(OutputPool::Create(backend->host_memory(),
                                        options.max_idle_output_bytes));
  }
}

absl::Status DeviceSet::StartLanes(const SchedulerOptions& options,
                                   LaneFeeder& feeder) {
  const int lanes = options.lanes_per_device;
  for (int device = 0; device < size(); ++device) {
    Backend& backend = *backends_[device];
    auto streams =
        StreamPool::Create(backend, lanes + LaneRoster::MaxLarge(lanes));
    if (!streams.ok()) return streams.status();
    streams_.push_back(*std::move(streams));
    for (int i = 0; i < lanes; ++i) {
      lanes_.push_back(std::make_unique<Lane>(
          static_cast<int>(lanes_.size()), backend, *streams_.back(),
          *pools_[device], options.slice_time, feeder));
    }
  }
  return absl::OkStatus();
}

int DeviceSet::IndexOf(const Backend& backend) const {
  const auto found = std::find(backends_.begin(), backends_.end(), &backend);
  return static_cast<int>(found - backends_.begin());
}

absl::StatusOr<std::shared_ptr<DeviceBuffer>> DeviceSet::NewBuffer(
    int device, int64_t bytes) {
  Backend& backend = *backends_[device];
  // Pooled, as fresh pages cost more than the copy into them.
  return backend.device().shares_host_memory
             ? NewHostBuffer(pools_[device], bytes)
             : backend.NewBuffer(bytes);
}

void DeviceSet::TrimPools(int64_t max_idle_bytes) {
  for (const auto& pool : pools_) pool->Trim(max_idle_bytes);
}

}  // namespace attnd::server
