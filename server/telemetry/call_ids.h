#ifndef ATTND_SERVER_TELEMETRY_CALL_IDS_H_
#define ATTND_SERVER_TELEMETRY_CALL_IDS_H_

// By what a call is found again: in the log, in traces, by its client.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/wire/trace_context.h"

namespace attnd::server {

class CallIds {
 public:
  CallIds() = default;
  // What the client's metadata say under kRequestIdKey and kTraceparentKey;
  // what is malformed counts as not said.
  CallIds(std::optional<absl::string_view> request_id,
          std::optional<absl::string_view> traceparent);

  // The client's, or one that the server has made up: 16 hexadecimal digits.
  std::string request_id() const;
  // Whether the client gave one of the two, and so wants to hear of them.
  bool asked_for() const { return !given_.empty() || parent_.has_value(); }
  // The client's step; empty: the call is in no trace.
  const std::optional<wire::TraceContext>& parent() const { return parent_; }
  // The server's own step, with parent()'s trace. Only where there is one.
  wire::TraceContext span() const;

 private:
  std::string given_;
  std::optional<wire::TraceContext> parent_;
  uint64_t number_ = 0;  // random, but for a default
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_CALL_IDS_H_
