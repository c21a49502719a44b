#ifndef ATTND_SERVER_TRANSFER_INCOMING_H_
#define ATTND_SERVER_TRANSFER_INCOMING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/request.h"
#include "server/transfer/transfer_stream.h"

namespace attnd::server {

// A request's tensors that arrive in chunks: where in one buffer each of them
// lies, and which chunks are there. Not thread-safe.
class Incoming {
 public:
  Incoming() = default;  // of no chunks
  Incoming(const Request& request, const PerTensor<bool>& streamed,
           int64_t chunk_bytes);

  // What all of them take, each aligned for a device. At most
  // DeviceInputBytes(request).
  int64_t buffer_bytes() const { return buffer_bytes_; }
  // Where in the buffer a tensor that is streamed begins.
  int64_t offset(TensorId tensor) const { return offsets_[tensor]; }

  // A chunk has come. True: it is new, and to be copied to its place; no other
  // will be. False: it has come before. INVALID_ARGUMENT, naming the field:
  // it is not on the grid, not of such a tensor, or one of more than twice as
  // many as there are.
  absl::StatusOr<bool> Claim(TensorId tensor, int64_t offset, int64_t bytes);
  int64_t bytes() const { return bytes_; }      // of all chunks
  int64_t missing() const { return missing_; }  // chunks that have not come
  std::vector<TensorRange> MissingRanges() const;

 private:
  PerTensor<bool> streamed_{};
  PerTensor<wire::ChunkGrid> grids_;
  PerTensor<int64_t> offsets_;
  int64_t buffer_bytes_ = 0, bytes_ = 0;
  int64_t chunks_ = 0, missing_ = 0, seen_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_INCOMING_H_
