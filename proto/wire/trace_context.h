#ifndef ATTND_PROTO_WIRE_TRACE_CONTEXT_H_
#define ATTND_PROTO_WIRE_TRACE_CONTEXT_H_

// Who asked for a call, as traces say it: the header "traceparent" of W3C's
// Trace Context (https://www.w3.org/TR/trace-context/). No gRPC in here.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace attnd::wire {

struct TraceContext {
  std::array<uint8_t, 16> trace_id{};  // of everything that was done for it
  std::array<uint8_t, 8> span_id{};    // of the one step that asks
  uint8_t flags = 0;                   // bit 0: somebody records it

  bool sampled() const { return (flags & 1) != 0; }
  bool operator==(const TraceContext&) const = default;
};

// Of version 00, or of a later one as far as it begins alike. Empty: `header`
// is not one; what called then counts as untraced.
std::optional<TraceContext> ParseTraceparent(absl::string_view header);
// Of version 00.
std::string ToTraceparent(const TraceContext& context);

// 32 and 16 hexadecimal digits.
std::string TraceIdOf(const TraceContext& context);
std::string SpanIdOf(const TraceContext& context);

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_TRACE_CONTEXT_H_
