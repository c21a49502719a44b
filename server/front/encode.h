#ifndef ATTND_SERVER_FRONT_ENCODE_H_
#define ATTND_SERVER_FRONT_ENCODE_H_

// Results to attn.v1 messages. No gRPC in here.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/request.h"
#include "proto/wire/codec.h"
#include "server/work/work.h"

namespace attnd::server {

// INVALID_ARGUMENT, naming the largest output and the bytes of each, when the
// response to `request` would be larger than `max_message_bytes`: nothing that
// cannot be sent needs to be computed. Counts the outputs exactly and the
// report with the most that it can take.
absl::Status CheckResponseFits(const Request& request,
                               int64_t max_message_bytes);

// The ForwardResponse or BackwardResponse for `result` of `request`. The
// pieces borrow the result's buffers, which must outlive them.
absl::StatusOr<std::vector<wire::Piece>> EncodeResult(const Request& request,
                                                      const WorkResult& result);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_ENCODE_H_
