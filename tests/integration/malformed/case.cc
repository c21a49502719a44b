#include "tests/integration/malformed/case.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::testing {
namespace {

std::string NameOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNoError:
      return "NO_ERROR";
    case ErrorCode::kProtocol:
      return "PROTOCOL_ERROR";
    case ErrorCode::kInternal:
      return "INTERNAL_ERROR";
    case ErrorCode::kFlowControl:
      return "FLOW_CONTROL_ERROR";
    case ErrorCode::kStreamClosed:
      return "STREAM_CLOSED";
    case ErrorCode::kFrameSize:
      return "FRAME_SIZE_ERROR";
    case ErrorCode::kRefusedStream:
      return "REFUSED_STREAM";
    case ErrorCode::kCancel:
      return "CANCEL";
    case ErrorCode::kCompression:
      return "COMPRESSION_ERROR";
    case ErrorCode::kEnhanceYourCalm:
      return "ENHANCE_YOUR_CALM";
  }
  return absl::StrCat("error ", static_cast<uint32_t>(code));
}

}  // namespace

std::string Outcome::ToString() const {
  switch (kind) {
    case kConnectionError:
      return absl::StrCat("connection ", NameOf(ErrorCode{code}));
    case kClosed:
      return "closed";
    case kStreamError:
      return absl::StrCat("stream ", NameOf(ErrorCode{code}));
    case kGrpcStatus:
      return absl::StrCat("grpc-status ", code);
    case kHttpStatus:
      return absl::StrCat("HTTP ", code);
    case kIgnored:
      return "ignored";
    case kUnexpected:
      break;
  }
  return text;
}

Outcome ConnectionError(ErrorCode code) {
  return {Outcome::kConnectionError, static_cast<uint32_t>(code), ""};
}
Outcome StreamError(ErrorCode code) {
  return {Outcome::kStreamError, static_cast<uint32_t>(code), ""};
}
Outcome Closed() { return {Outcome::kClosed, 0, ""}; }
Outcome Ignored() { return {Outcome::kIgnored, 0, ""}; }
Outcome Status(uint32_t grpc_status) {
  return {Outcome::kGrpcStatus, grpc_status, ""};
}
Outcome Http(uint32_t status) { return {Outcome::kHttpStatus, status, ""}; }

MalformedCase ConnectionCase(std::string name, std::string section,
                             std::string bytes, ErrorCode code) {
  return {.name = std::move(name),
          .section = std::move(section),
          .bytes = std::move(bytes),
          .expected = {ConnectionError(code)}};
}

MalformedCase But(MalformedCase c, Outcome differs, std::string why) {
  c.differs = std::move(differs);
  c.why = std::move(why);
  return c;
}

}  // namespace attnd::testing
