#ifndef ATTND_SERVER_WORK_REQUEST_BYTES_H_
#define ATTND_SERVER_WORK_REQUEST_BYTES_H_

// How much memory a request's tensors take: admission charges it, and a group's
// run allocates it, so both count here.

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/request.h"
#include "server/work/work.h"

namespace attnd::server {

// `bytes` of a tensor, up to where the next one may begin.
constexpr int64_t AlignedTensorBytes(int64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// Where a request's tensors may be, as far as it is decided: on which devices,
// and which of them kernels use where they lie, in memory that is charged to
// somebody else.
struct Placement {
  uint64_t devices = ~uint64_t{0};
  PerTensor<bool> inputs_in_place, outputs_in_place;
};
// As `work` says, on devices that share the host's memory or do not.
Placement PlacementOf(const Work& work, bool shares_host_memory);

// What a request's inputs take on a device, but for those in place: each tensor
// aligned. Never 0.
int64_t DeviceInputBytes(const Request& request,
                         const Placement& placement = {});
// What its outputs take from a pool, or on the device alone, which is less.
int64_t PooledOutputBytes(const Request& request,
                          const Placement& placement = {});

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_REQUEST_BYTES_H_
