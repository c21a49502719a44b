#ifndef ATTND_SERVER_TRANSFER_TRANSFER_STREAM_H_
#define ATTND_SERVER_TRANSFER_TRANSFER_STREAM_H_

// What a transfer and the streams that carry it say to each other, whatever a
// stream is made of. No gRPC and no protobuf in here.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/request.h"
#include "proto/wire/chunk_grid.h"
#include "server/work/work.h"

namespace attnd::server {

// A message as it arrived; its memory goes back with it.
class ReceivedMessage {
 public:
  virtual ~ReceivedMessage() = default;
  virtual absl::Span<const absl::string_view> fragments() const = 0;
};

// Bytes of one tensor, which lie in the message that brought them.
struct ArrivedChunk {
  TensorId tensor = TensorId::kQ;
  int64_t offset = 0;
  std::vector<ConstHostSpan> pieces;
  std::unique_ptr<ReceivedMessage> message;

  int64_t bytes() const {
    int64_t total = 0;
    for (const ConstHostSpan& piece : pieces) total += piece.size();
    return total;
  }
};

struct TensorRange {
  TensorId tensor = TensorId::kQ;
  wire::ByteRange range;
};

// Which tensors of a request, and which of its results, travel in chunks.
struct Streamed {
  PerTensor<bool> inputs, outputs;
};

// What the response says beside results' chunks.
struct TransferResult {
  std::shared_ptr<const Request> request;
  std::shared_ptr<const WorkResult> result;  // with inline results
  Streamed streamed;
};

// One stream of a transfer, which calls it without its lock. No function blocks
// or calls back before it returns.
class TransferStream {
 public:
  virtual ~TransferStream() = default;

  // Asks for the next message: one of Transfer's On functions. One at a time.
  // After End, as after the next, nothing comes.
  virtual void Read() = 0;
  // One at a time: Transfer::OnSent follows.
  virtual void SendAdmitted(const std::string& token, int streams,
                            int64_t chunk_bytes) = 0;
  virtual void SendMissing(const std::vector<TensorRange>& ranges) = 0;
  // `owner` keeps the bytes until they have left. `here`: the calling thread,
  // rather than the stream's own, may copy them to the network.
  virtual void SendChunk(TensorId tensor, int64_t offset, ConstHostSpan bytes,
                         std::shared_ptr<const void> owner, bool here) = 0;
  virtual void SendResult(const TransferResult& result) = 0;
  // Once, and the last: after what is being sent. An error waits for that only
  // if it is taken soon.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_TRANSFER_STREAM_H_
