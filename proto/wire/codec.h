#ifndef ATTND_PROTO_WIRE_CODEC_H_
#define ATTND_PROTO_WIRE_CODEC_H_

// attn.v1 messages on the wire without tensor bytes ever passing through
// protobuf. A message is a header (the generated type, with every Tensor's and
// Chunk's `data` left out) plus the data of its top-level fields of these
// types:
//
//   sending    Encode(header, data) -> pieces: our bytes, caller memory
//   receiving  Decode(fragments)    -> header, and where tensors' bytes are
//
// What is sent is plain protobuf, and any plain protobuf is accepted, in any
// field order. No gRPC in here.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"

namespace attnd::wire {

// The data of the top-level Tensor or Chunk field `field`, e.g.
// ForwardRequest::kQFieldNumber, in one or more pieces, in order. Views.
struct TensorData {
  int field = 0;
  absl::InlinedVector<absl::string_view, 1> pieces;

  int64_t bytes() const {
    int64_t total = 0;
    for (absl::string_view piece : pieces) total += piece.size();
    return total;
  }
};

// A piece of an encoded message: our own bytes, then borrowed ones. Either may
// be empty. `borrowed` points into what Encode was given.
struct Piece {
  std::string owned;
  absl::string_view borrowed;
};

// A message's length, encoded or received.
inline int64_t TotalBytes(absl::Span<const Piece> pieces) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) {
    bytes += piece.owned.size() + piece.borrowed.size();
  }
  return static_cast<int64_t>(bytes);
}
inline int64_t TotalBytes(absl::Span<const absl::string_view> fragments) {
  size_t bytes = 0;
  for (absl::string_view fragment : fragments) bytes += fragment.size();
  return static_cast<int64_t>(bytes);
}

// The largest message that plain protobuf can read, and so the largest sent.
inline constexpr int64_t kMaxMessageBytes = (int64_t{1} << 31) - 1;
// The largest message once its tensors' data is taken out.
inline constexpr int64_t kMaxHeaderBytes = int64_t{1} << 20;

// Encodes `header` with `data` put into its Tensors and Chunks. One that is set
// in `header` without an entry in `data` is sent as it is there; one that is
// not set in `header`, but has an entry in `data`, is sent with data only.
// INVALID_ARGUMENT naming the field when its data or another member of its
// oneof is given as well, or the whole exceeds kMaxMessageBytes.
absl::StatusOr<std::vector<Piece>> Encode(
    const google::protobuf::Message& header, absl::Span<const TensorData> data);

enum class UnknownFields { kRefuse, kIgnore };

// Parses the concatenation of `fragments` into `header` (its Tensors and Chunks
// without data) and `data` (an entry for each of them that has a data field,
// also when it is empty). Errors:
//   INVALID_ARGUMENT  truncated or garbled bytes, a wrong wire type, a group,
//                     text that is not UTF-8, a singular field or a oneof
//                     given twice, an unknown enum value (kRefuse only), a
//                     header over kMaxHeaderBytes, a message over
//                     kMaxMessageBytes; the field is named by its path
//   UNIMPLEMENTED     a field that the schema lacks, at any depth, naming its
//                     number and the path of its message (kRefuse only; with
//                     kIgnore it is left out of `header`)
// After an error both outputs are empty. `data` points into the fragments; the
// data of a Tensor that is nested deeper (as in an ExchangeHeader), or
// repeated, stays in `header`.
absl::Status Decode(absl::Span<const absl::string_view> fragments,
                    UnknownFields unknown, google::protobuf::Message& header,
                    std::vector<TensorData>& data);

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_CODEC_H_
