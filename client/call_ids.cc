#include "client/call_ids.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/wire/metadata.h"
#include "proto/wire/status.h"
#include "proto/wire/trace_context.h"

namespace attnd::client {

absl::Status CheckIds(const CallOptions& options) {
  if (!options.request_id.empty() && !wire::IsRequestId(options.request_id)) {
    return wire::FieldError(
        "request_id",
        absl::StrCat("\"", wire::Echo(options.request_id),
                     "\" is not 1 to 128 letters, digits and \"._:-\""));
  }
  if (!options.traceparent.empty() &&
      !wire::ParseTraceparent(options.traceparent).has_value()) {
    return wire::FieldError("traceparent",
                            absl::StrCat("\"", wire::Echo(options.traceparent),
                                         "\" is none of W3C's Trace Context"));
  }
  return absl::OkStatus();
}

std::string RequestIdOf(const absl::Status& status) {
  return wire::RequestId(status);
}

}  // namespace attnd::client
