#ifndef ATTND_CLIENT_MESSAGES_H_
#define ATTND_CLIENT_MESSAGES_H_

// Calls to attn.v1 requests, and responses into the caller's memory. Pure
// functions; tensor bytes are copied once, on the way in.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attnd/client.h"
#include "client/placement.h"
#include "proto/wire/codec.h"

namespace attnd::client {

using Pieces = std::vector<wire::Piece>;
using Fragments = absl::Span<const absl::string_view>;

// The request's header, and pieces that borrow the call's input tensors, but
// for those that `placement` has go by reference, and count for no limit.
// INVALID_ARGUMENT naming the field: a tensor without memory, a shape that is
// negative or overflows, an output that is not shaped as the inputs make it, a
// request or a response over `max_message_bytes`. What only the server can
// judge is left to it.
absl::StatusOr<Pieces> EncodeForward(const ForwardCall& call,
                                     const CallOptions& options,
                                     int64_t max_message_bytes,
                                     const Placement& placement = {});
absl::StatusOr<Pieces> EncodeBackward(const BackwardCall& call,
                                      const CallOptions& options,
                                      int64_t max_message_bytes,
                                      const Placement& placement = {});

// An output as the caller wants it: where a response's tensor field goes.
struct Output {
  int field = 0;
  const char* name = "";
  Tensor tensor;
  // In an Exchange: in chunks, `bytes` in all, instead of in the response.
  bool streamed = false;
  int64_t bytes = 0;
  // In a region, instead of in the response.
  RegionPlace place;
};
std::vector<Output> Outputs(const ForwardCall& call,
                            const Placement& placement = {});
std::vector<Output> Outputs(const BackwardCall& call,
                            const Placement& placement = {});

// An input that travels in chunks, in the caller's memory.
struct StreamedInput {
  int field = 0;  // of the request
  absl::string_view bytes;
};

// A call as an Exchange.
struct ExchangeParts {
  Pieces header;  // the first message
  int streams = 1;
  std::vector<StreamedInput> inputs;
  std::vector<Output> outputs;
};

// What an Exchange asks the server for.
struct ExchangeWishes {
  int streams = 1;
  int64_t chunk_bytes = 0;  // 0: the server's choice
};

// Tensors below the first travel in the header, or in the response, as long as
// no more than the second do: a chunk and a place on the grid of their own
// would cost more than they do.
inline constexpr int64_t kInlineTensorBytes = int64_t{64} << 10;
inline constexpr int64_t kInlineMessageBytes = int64_t{512} << 10;

// As EncodeForward and EncodeBackward, for calls of any size; the header alone
// has a limit, wire::kMaxHeaderBytes.
absl::StatusOr<ExchangeParts> EncodeForwardExchange(
    const ForwardCall& call, const CallOptions& options,
    const ExchangeWishes& wishes, const Placement& placement = {});
absl::StatusOr<ExchangeParts> EncodeBackwardExchange(
    const BackwardCall& call, const CallOptions& options,
    const ExchangeWishes& wishes, const Placement& placement = {});

// Copies the outputs of a ForwardResponse or a BackwardResponse. INTERNAL
// naming the field, with nothing said about what is already written, when it is
// garbled or lacks an output or has one of another type, shape or size, or in
// another place. What is in a region is there already.
absl::Status DecodeForward(Fragments fragments,
                           absl::Span<const Output> outputs, Report& report);
absl::Status DecodeBackward(Fragments fragments,
                            absl::Span<const Output> outputs, Report& report);
// The same of an ExchangeResponse with one of these. Outputs that are streamed
// must be said to be, and are not looked at otherwise.
absl::Status DecodeForwardExchange(Fragments fragments,
                                   absl::Span<const Output> outputs,
                                   Report& report);
absl::Status DecodeBackwardExchange(Fragments fragments,
                                    absl::Span<const Output> outputs,
                                    Report& report);

Pieces EncodeGetServerInfo();
absl::Status DecodeServerInfo(Fragments fragments, ServerInfo& info);

// grpc.health.v1.Health/Check.
Pieces EncodeHealthCheck(absl::string_view service);
// OK when SERVING; UNAVAILABLE otherwise.
absl::Status DecodeHealthCheck(Fragments fragments);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_MESSAGES_H_
