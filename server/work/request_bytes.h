#ifndef ATTND_SERVER_WORK_REQUEST_BYTES_H_
#define ATTND_SERVER_WORK_REQUEST_BYTES_H_

// How much memory a request's tensors take: admission charges it, and a group's
// run allocates it, so both count here.

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/request.h"

namespace attnd::server {

// `bytes` of a tensor, up to where the next one may begin.
constexpr int64_t AlignedTensorBytes(int64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// What a request's inputs take on a device: each tensor aligned. Never 0.
int64_t DeviceInputBytes(const Request& request);
// What its outputs take from a pool.
int64_t PooledOutputBytes(const Request& request);

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_REQUEST_BYTES_H_
