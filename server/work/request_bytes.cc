#include "server/work/request_bytes.h"

#include <algorithm>
#include <variant>

#include "server/work/output_pool.h"

namespace attnd::server {
namespace {

bool IsInPlace(const RegionBytes& bytes, bool shares_host_memory) {
  return bytes.region != nullptr &&
         (bytes.region->device() != nullptr || shares_host_memory);
}

}  // namespace

Placement PlacementOf(const Work& work, bool shares_host_memory) {
  Placement placement;
  placement.devices = work.devices;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    const auto* input = std::get_if<RegionBytes>(&work.inputs[id]);
    placement.inputs_in_place[id] =
        input != nullptr && IsInPlace(*input, shares_host_memory);
    placement.outputs_in_place[id] =
        IsInPlace(work.placed[id], shares_host_memory);
  }
  return placement;
}

int64_t DeviceInputBytes(const Request& request, const Placement& placement) {
  int64_t bytes = 0;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (placement.inputs_in_place[id]) continue;
    bytes += AlignedTensorBytes(request.input(id).bytes);
  }
  return std::max(bytes, kTensorAlignment);
}

int64_t PooledOutputBytes(const Request& request, const Placement& placement) {
  int64_t bytes = 0;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    const Request::Tensor& output = request.output(id);
    if (!output.present || placement.outputs_in_place[id]) continue;
    bytes += OutputPool::Capacity(output.bytes);
  }
  return bytes;
}

}  // namespace attnd::server
