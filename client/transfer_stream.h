#ifndef ATTND_CLIENT_TRANSFER_STREAM_H_
#define ATTND_CLIENT_TRANSFER_STREAM_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "client/exchange_messages.h"
#include "client/messages.h"
#include "client/transfer.h"
#include "client/transport.h"

namespace attnd::client {

// One of its streams: where it stands, and whose event it is.
class Transfer::Stream final : public StreamEvents {
 public:
  explicit Stream(Transfer& transfer) : transfer_(transfer) {}

  void OnWritten(bool ok) override { transfer_.OnWritten(*this, ok); }
  void OnMessage(Fragments fragments) override {
    transfer_.OnMessage(*this, fragments);
  }
  void OnEnd(absl::Status status) override {
    transfer_.OnEnd(*this, std::move(status));
  }

  std::shared_ptr<ByteStream> bytes;  // set before it starts
  // All under the transfer's lock.
  bool writing = true;                // its first message, to begin with
  std::optional<InputChunk> sending;  // what it writes, if that is a chunk
  bool started = false;               // its first message has been taken
  bool broken = false;                // takes no more messages
  bool closed = false;                // was told that no more will come
  bool ended = false;

 private:
  Transfer& transfer_;
};

// What a stream does next.
struct Transfer::Step {
  enum class Kind { kNone, kWrite, kChunk, kClose };
  Kind kind = Kind::kNone;
  Pieces message;    // of kWrite
  InputChunk chunk;  // of kChunk
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TRANSFER_STREAM_H_
