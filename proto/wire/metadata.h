#ifndef ATTND_PROTO_WIRE_METADATA_H_
#define ATTND_PROTO_WIRE_METADATA_H_

#include "absl/strings/string_view.h"

namespace attnd::wire {

// What a client may say in a call's metadata, and what it hears.

// The bytes of the call's message, decimal. A server that knows them can keep
// room for the message before it reads it; without them it must keep as much as
// the largest takes. They must not be too few; a few too many do no harm.
inline constexpr char kRequestBytesKey[] = "attnd-request-bytes";

// What the client calls the request in its own log, to find it in the server's:
// 1 to 128 of letters, digits and "._:-"; anything else is not taken. The
// answer's trailing metadata repeat it. An error has one in any case, which the
// server has made up if need be.
inline constexpr char kRequestIdKey[] = "x-request-id";
// Whether `text` is such an id, which nothing need escape.
bool IsRequestId(absl::string_view text);

// See trace_context.h. The answer's has the span in which the server worked.
inline constexpr char kTraceparentKey[] = "traceparent";

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_METADATA_H_
