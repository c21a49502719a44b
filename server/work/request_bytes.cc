#include "server/work/request_bytes.h"

#include <algorithm>

#include "server/work/output_pool.h"

namespace attnd::server {

int64_t DeviceInputBytes(const Request& request) {
  int64_t bytes = 0;
  for (int i = 0; i < kTensorIds; ++i) {
    bytes += AlignedTensorBytes(request.input(static_cast<TensorId>(i)).bytes);
  }
  return std::max(bytes, kTensorAlignment);
}

int64_t PooledOutputBytes(const Request& request) {
  int64_t bytes = 0;
  for (int i = 0; i < kTensorIds; ++i) {
    const Request::Tensor& output = request.output(static_cast<TensorId>(i));
    if (output.present) bytes += OutputPool::Capacity(output.bytes);
  }
  return bytes;
}

}  // namespace attnd::server
