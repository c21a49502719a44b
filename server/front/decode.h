#ifndef ATTND_SERVER_FRONT_DECODE_H_
#define ATTND_SERVER_FRONT_DECODE_H_

// attn.v1 messages to work. No gRPC in here.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attn/v1/attention.pb.h"
#include "kernels/attention.h"
#include "server/transfer/transfer_table.h"
#include "server/work/region.h"
#include "server/work/work.h"

namespace attnd::server {

// The most sequences (entries of q_lens, kv_lens, q_start or kv_start) in one
// request.
inline constexpr int kMaxSequences = 1 << 14;

// Decodes a ForwardRequest or BackwardRequest, of which `fragments` are the
// pieces in order, into work.request, work.inputs (views of `fragments`, and of
// `regions`, which may be null), work.placed, work.devices and work.priority.
// Nothing the size of a tensor is allocated.
// Errors, all with the field's path:
//   INVALID_ARGUMENT  garbled bytes, or a request that makes no sense
//   UNIMPLEMENTED     a field that the schema lacks
//   NOT_FOUND         a region that there is not
absl::Status DecodeWork(Op op, absl::Span<const absl::string_view> fragments,
                        const RegionLookup* regions, Work& work);

// What the header in `message` asks for. Inputs that are not streamed are views
// of `message`, which the work keeps until its inputs have been copied. Errors
// as above.
absl::StatusOr<TransferSpec> DecodeExchangeHeader(
    std::shared_ptr<attn::v1::ExchangeRequest> message,
    const RegionLookup* regions);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_DECODE_H_
