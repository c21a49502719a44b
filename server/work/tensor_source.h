#ifndef ATTND_SERVER_WORK_TENSOR_SOURCE_H_
#define ATTND_SERVER_WORK_TENSOR_SOURCE_H_

// Where an input tensor's bytes lie when a lane takes its request.

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "server/work/region.h"

namespace attnd::server {

// In host memory, one piece after another; valid until Work::release_inputs. A
// lane copies them to its device.
using HostPieces = std::vector<ConstHostSpan>;

// On a device already, `offset` bytes from the start of `buffer`, a multiple of
// kTensorAlignment: kernels read them where they lie. Whoever made the buffer
// has charged it to the request (DeviceInputBytes) and says in Work::devices
// which device it belongs to.
struct DeviceBytes {
  std::shared_ptr<DeviceBuffer> buffer;
  int64_t offset = 0;
};

// Or in a region, which kernels read where it is if they can, and which a
// lane's stream copies from otherwise.
//
// GroupMember has the one switch over these.
using TensorSource = std::variant<HostPieces, DeviceBytes, RegionBytes>;

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_TENSOR_SOURCE_H_
