#ifndef ATTND_SERVER_TRANSFER_OUTGOING_H_
#define ATTND_SERVER_TRANSFER_OUTGOING_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "server/transfer/transfer_stream.h"

namespace attnd::server {

// The chunks of a transfer's results that have yet to be sent, in order. Not
// thread-safe.
class Outgoing {
 public:
  struct Chunk {
    TensorId tensor = TensorId::kO;
    int64_t offset = 0;
    ConstHostSpan bytes;
  };

  Outgoing() = default;  // of no chunks
  // Of the results of `result` that `streamed` says.
  Outgoing(std::shared_ptr<const WorkResult> result,
           const PerTensor<bool>& streamed, int64_t chunk_bytes);

  bool empty() const { return queue_.empty(); }
  // Keeps all of the bytes.
  const std::shared_ptr<const WorkResult>& owner() const { return result_; }
  int64_t bytes() const { return bytes_; }  // of all results' chunks
  // Precondition: not empty.
  Chunk Take();
  // One that did not leave, to be sent before others.
  void PutBack(const Chunk& chunk);
  // Queues again what did not arrive. INVALID_ARGUMENT, naming the field: it is
  // not on the grid, not of a result in chunks, or more than all results again.
  absl::Status Repeat(const std::vector<TensorRange>& ranges);

 private:
  // Chunks of one tensor.
  struct Run {
    TensorId tensor;
    int64_t next = 0, end = 0;
  };
  ConstHostSpan Bytes(TensorId tensor, wire::ByteRange range) const;

  std::shared_ptr<const WorkResult> result_;
  PerTensor<wire::ChunkGrid> grids_;
  std::deque<Run> queue_;
  int64_t bytes_ = 0;
  int64_t chunks_ = 0, repeated_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_OUTGOING_H_
