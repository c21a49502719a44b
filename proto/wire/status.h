#ifndef ATTND_PROTO_WIRE_STATUS_H_
#define ATTND_PROTO_WIRE_STATUS_H_

// absl::Status with google.rpc details (BadRequest, RetryInfo, ErrorInfo,
// RequestInfo), and its bytes as google.rpc.Status. Encoded here by hand:
// linking google/rpc descriptors would collide with an application's own. No
// gRPC in here; grpc_status.h maps to grpc::Status.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnd::wire {

struct FieldViolation {
  std::string field;
  std::string description;
};

// INVALID_ARGUMENT "<field>: <description>", with a BadRequest that names the
// field: base/field_error.h's, in the form in which others read it. For what
// may reach callers of the client library without a server in between.
absl::Status FieldError(absl::string_view field, absl::string_view description);
// UNIMPLEMENTED, naming the field that the schema lacks: number `number` of the
// message at `path` (empty: the top one), which is a `type`.
absl::Status UnknownFieldError(absl::string_view path, absl::string_view type,
                               int number);
// Adds a violation to `status`, of any code but OK.
void AddFieldViolation(absl::string_view field, absl::string_view description,
                       absl::Status& status);
// The violations of `status`, in order: its BadRequest's, or the one of a
// FieldError of base/field_error.h.
std::vector<FieldViolation> FieldViolations(const absl::Status& status);

// `status` with a RetryInfo: trying again after `delay` may succeed.
// Delays outside what a protobuf Duration holds, or below 0, are clamped.
absl::Status WithRetryInfo(absl::Status status, absl::Duration delay);
// The delay of `status`'s RetryInfo, >= 0, when it has a well-formed one.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// `status` with an ErrorInfo of the domain "attnd": why, for programs, in words
// such as "QUEUE_FULL" (server/scheduling/call_refusal.h has them all).
absl::Status WithReason(absl::Status status, absl::string_view reason);
// That reason; empty where `status` has none of ours.
std::string Reason(const absl::Status& status);

// `status` with a RequestInfo: by what the server knows the call that failed
// (metadata.h). Clients add it, who hear of it in metadata.
absl::Status WithRequestId(absl::Status status, absl::string_view id);
// That id; empty where `status` has none.
std::string RequestId(const absl::Status& status);

// google.rpc.Status {code, message, details}, one detail per payload, by type
// URL; empty when OK. A FieldError of base/field_error.h has a BadRequest.
std::string EncodeStatus(const absl::Status& status);
// The inverse, without loss, into `status`. INVALID_ARGUMENT when `bytes` are
// not one; `status` is then as it was.
absl::Status DecodeStatus(absl::string_view bytes, absl::Status& status);

// Client-given text made safe to echo: printable ASCII, the rest escaped, at
// most 64 characters, cut with "..." at their end.
std::string Echo(absl::string_view text);

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_STATUS_H_
