#ifndef ATTND_TESTS_INTEGRATION_MALFORMED_CASE_H_
#define ATTND_TESTS_INTEGRATION_MALFORMED_CASE_H_

// What a hostile or broken client sends, what the RFCs say a server does about
// it, and what attnd does where that is something else.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/http2_bytes.h"

namespace attnd::testing {

// What became of a case.
struct Outcome {
  enum Kind {
    kConnectionError,  // GOAWAY with `code`, and the connection ended
    kClosed,           // the connection ended without a word
    kStreamError,      // RST_STREAM with `code`
    kGrpcStatus,       // an answer whose grpc-status is `code`
    kHttpStatus,       // an answer of HTTP alone, whose :status is `code`
    kIgnored,          // nothing, and the next call of the connection is served
    kUnexpected,       // none of these; `text` says what
  };

  Kind kind;
  uint32_t code = 0;
  std::string text;

  bool OfStream() const {
    return kind == kStreamError || kind == kGrpcStatus || kind == kHttpStatus;
  }
  std::string ToString() const;
  bool operator==(const Outcome& other) const = default;
};

Outcome ConnectionError(ErrorCode code);
Outcome StreamError(ErrorCode code);
Outcome Closed();
Outcome Ignored();
Outcome Status(uint32_t grpc_status);
Outcome Http(uint32_t status);

// What is sent after a case's bytes, which tells what became of them.
enum class Then {
  kCall,    // a good call on kProbeStream: it is served or it is not
  kFinish,  // no byte more: the client shuts down its side of the connection
  kWait,    // nothing, where more bytes would be a part of the case
};

inline constexpr uint32_t kProbeStream = 1001;

struct MalformedCase {
  std::string name;
  // The section: of RFC 9113, or "HPACK" (RFC 7541) or "gRPC" (the protocol
  // over HTTP/2) before it.
  std::string section;
  std::string bytes;
  // What may become of it, the first being what is said first.
  std::vector<Outcome> expected;
  // What becomes of it where that is not expected, and the reason.
  std::optional<Outcome> differs = std::nullopt;
  std::string why = "";

  Then then = Then::kCall;
  // Whether `bytes` are the first of the connection. Otherwise a good preface
  // and settings come before, and the server's settings are acknowledged.
  bool raw = false;
  // Sent before `bytes`, and the end of stream 1 awaited.
  std::string before = "";
};

using MalformedCases = std::vector<MalformedCase>;

// A case that ends the connection with `code`.
MalformedCase ConnectionCase(std::string name, std::string section,
                             std::string bytes, ErrorCode code);

// `c`, with `differs` for what becomes of it and `why`.
MalformedCase But(MalformedCase c, Outcome differs, std::string why);

// Reasons that tables share.
inline constexpr char kDataIsProtocol[] =
    "gRPC resets a stream with PROTOCOL_ERROR whatever is wrong with DATA";
inline constexpr char kNoPadding[] = "gRPC does not know padding";
inline constexpr char kUnknown[] =
    "gRPC answers a request that lacks what it looks for with UNKNOWN";

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_MALFORMED_CASE_H_
