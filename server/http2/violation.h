#ifndef ATTND_SERVER_HTTP2_VIOLATION_H_
#define ATTND_SERVER_HTTP2_VIOLATION_H_

#include "absl/strings/string_view.h"
#include "server/http2/frame.h"

namespace attnd::server::http2 {

// Why a connection must end.
struct Violation {
  ErrorCode code = ErrorCode::kProtocolError;
  // For the log and for GOAWAY: a literal, with nothing of the peer's in it.
  absl::string_view what;
};

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_VIOLATION_H_
