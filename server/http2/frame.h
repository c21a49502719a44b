#ifndef ATTND_SERVER_HTTP2_FRAME_H_
#define ATTND_SERVER_HTTP2_FRAME_H_

// HTTP/2 as bytes (RFC 9113): frames, their flags, and the codes of errors.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnd::server::http2 {

using Bytes = absl::Span<const uint8_t>;

// What a client sends first of all (section 3.4).
inline constexpr absl::string_view kPreface =
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

inline constexpr uint8_t kAck = 0x1;  // of SETTINGS and PING
inline constexpr uint8_t kEndStream = 0x1;
inline constexpr uint8_t kEndHeaders = 0x4;
inline constexpr uint8_t kPadded = 0x8;
inline constexpr uint8_t kHasPriority = 0x20;

// Section 7.
enum class ErrorCode : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kFlowControlError = 3,
  kSettingsTimeout = 4,
  kStreamClosed = 5,
  kFrameSizeError = 6,
  kCompressionError = 9,
  kEnhanceYourCalm = 11,
};

// What the nine bytes before each payload say.
struct Frame {
  uint32_t length = 0;  // of the payload
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};
inline constexpr size_t kFrameHeaderBytes = 9;

// A number as the network has it, of at most four bytes.
inline uint32_t BigEndian(Bytes bytes) {
  uint32_t value = 0;
  for (const uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

// Of kFrameHeaderBytes bytes. The reserved bit of the stream is ignored.
inline Frame ParseFrame(Bytes header) {
  return {.length = BigEndian(header.subspan(0, 3)),
          .type = header[3],
          .flags = header[4],
          .stream = BigEndian(header.subspan(5, 4)) & 0x7fffffff};
}

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_FRAME_H_
