#ifndef ATTND_SERVER_SCHEDULING_DEVICE_SET_H_
#define ATTND_SERVER_SCHEDULING_DEVICE_SET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "server/execution/lane.h"
#include "server/execution/stream_pool.h"
#include "server/scheduling/options.h"
#include "server/work/output_pool.h"

namespace attnd::server {

// A scheduler's devices, with what each one's lanes share, and the lanes, which
// are counted device by device. Thread-safe once its lanes have started.
class DeviceSet {
 public:
  // `backends` outlive it.
  DeviceSet(const SchedulerOptions& options, std::vector<Backend*> backends);

  // Any error of Backend::NewStream.
  absl::Status StartLanes(const SchedulerOptions& options, LaneFeeder& feeder);
  // The feeder must let them end.
  void JoinLanes() { lanes_.clear(); }

  absl::Span<Backend* const> backends() const { return backends_; }
  int size() const { return static_cast<int>(backends_.size()); }
  // Whether all of them do.
  bool share_host_memory() const { return share_host_memory_; }
  bool IsTeam(int device) const {
    return backends_[device]->device().members > 0;
  }
  int IndexOf(const Backend& backend) const;
  StreamPool& streams(int device) { return *streams_[device]; }
  Lane& lane(int lane) { return *lanes_[lane]; }
  // `bytes` of memory where requests' inputs may land. RESOURCE_EXHAUSTED: none
  // now. Any other error: the device is broken.
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(int device,
                                                          int64_t bytes);
  // Gives idle memory of results back until each pool has at most so much.
  void TrimPools(int64_t max_idle_bytes);

 private:
  const std::vector<Backend*> backends_;
  const bool share_host_memory_;
  std::vector<std::shared_ptr<OutputPool>> pools_;    // by device
  std::vector<std::unique_ptr<StreamPool>> streams_;  // by device
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_DEVICE_SET_H_
