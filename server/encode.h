#ifndef ATTND_SERVER_ENCODE_H_
#define ATTND_SERVER_ENCODE_H_

// Results to attn.v1 messages. No gRPC in here.

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/request.h"
#include "proto/codec.h"
#include "server/work.h"

namespace attnd::server {

// The ForwardResponse or BackwardResponse for `result` of `request`. The
// pieces borrow the result's buffers, which must outlive them.
absl::StatusOr<std::vector<wire::Piece>> EncodeResult(const Request& request,
                                                      const WorkResult& result);

}  // namespace attnd::server

#endif  // ATTND_SERVER_ENCODE_H_
