#ifndef ATTND_CLIENT_EXCHANGE_MESSAGES_H_
#define ATTND_CLIENT_EXCHANGE_MESSAGES_H_

// What passes in an Exchange between the header and the response: chunks, and
// what is said about them. A chunk costs a microsecond here, and no copy.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/messages.h"
#include "proto/wire/chunk_grid.h"

namespace attnd::client {

// A part of a streamed tensor, which has that number in the request, or in the
// response.
struct TensorRange {
  int tensor = 0;
  wire::ByteRange range;

  friend bool operator==(const TensorRange&, const TensorRange&) = default;
};

// Bytes of the caller's, on their way to the server.
struct InputChunk {
  int tensor = 0;
  int64_t offset = 0;
  absl::string_view bytes;
};

Pieces EncodeJoin(absl::string_view transfer);
Pieces EncodeChunk(const InputChunk& chunk);
Pieces EncodeInputsSent(int streams);
Pieces EncodeMissing(absl::Span<const TensorRange> ranges);

// What the server sends.
struct Grant {
  std::string transfer;
  int streams = 0;
  int64_t chunk_bytes = 0;
};
struct MissingInputs {
  std::vector<TensorRange> ranges;
};
struct ResultChunk {
  int tensor = 0;
  int64_t offset = 0;
  absl::InlinedVector<absl::string_view, 8> pieces;  // views
  int64_t bytes = 0;
};
struct FinalResponse {};  // the whole message is for DecodeForwardExchange
struct UnknownPart {};    // of a later version of the schema
using ServerPart =
    std::variant<UnknownPart, Grant, MissingInputs, ResultChunk, FinalResponse>;

// INTERNAL, naming the field: the message is garbled. Of a response only that
// it is one is looked at.
absl::StatusOr<ServerPart> ReadPart(Fragments fragments);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_EXCHANGE_MESSAGES_H_
