#ifndef ATTND_SERVER_FRONT_ENCODE_H_
#define ATTND_SERVER_FRONT_ENCODE_H_

// Results to attn.v1 messages. No gRPC in here.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/request.h"
#include "proto/wire/codec.h"
#include "server/transfer/transfer_stream.h"
#include "server/work/work.h"

namespace attnd::server {

// INVALID_ARGUMENT, naming the largest output and the bytes of each, when the
// response to `request` would be larger than `max_message_bytes`: nothing that
// cannot be sent needs to be computed. Counts the outputs that are not in a
// region exactly, and the rest with the most that it can take.
absl::Status CheckResponseFits(const Request& request,
                               int64_t max_message_bytes,
                               const PerTensor<RegionBytes>& placed = {});

// The ForwardResponse or BackwardResponse for `result` of `request`. The
// pieces borrow the result's buffers, which must outlive them.
absl::StatusOr<std::vector<wire::Piece>> EncodeResult(const Request& request,
                                                      const WorkResult& result);

// The same for an Exchange, whose response may be as long as a header: of
// results that are not streamed either.
absl::Status CheckInlineFits(const Request& request,
                             const PerTensor<bool>& streamed,
                             const PerTensor<RegionBytes>& placed = {});

// What a server sends in an Exchange. Chunks' bytes are borrowed. Numbers of
// tensors are those of the response of `op`; of requests' tensors for Missing.
std::vector<wire::Piece> EncodeAdmitted(const std::string& token, int streams,
                                        int64_t chunk_bytes);
std::vector<wire::Piece> EncodeMissing(Op op,
                                       const std::vector<TensorRange>& ranges);
std::vector<wire::Piece> EncodeChunk(TensorId tensor, int64_t offset,
                                     ConstHostSpan bytes);
std::vector<wire::Piece> EncodeTransferResult(const TransferResult& result);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_ENCODE_H_
