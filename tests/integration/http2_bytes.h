#ifndef ATTND_TESTS_INTEGRATION_HTTP2_BYTES_H_
#define ATTND_TESTS_INTEGRATION_HTTP2_BYTES_H_

// HTTP/2 frames (RFC 9113), headers packed by HPACK (RFC 7541) and gRPC's
// messages as bytes. Nothing here checks what it is given: what no library
// would send is what it is for.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attnd::testing {

// RFC 9113, section 6.
enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

inline constexpr uint8_t kAck = 1;
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;
inline constexpr uint8_t kPadded = 8;
inline constexpr uint8_t kHasPriority = 0x20;

// RFC 9113, section 7.
enum class ErrorCode : uint32_t {
  kNoError = 0,
  kProtocol = 1,
  kInternal = 2,
  kFlowControl = 3,
  kStreamClosed = 5,
  kFrameSize = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kCompression = 9,
  kEnhanceYourCalm = 11,
};

// Of the client, before its first frame.
inline constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// The largest frame that anyone may send without having been told of more.
inline constexpr size_t kMaxFrame = 16384;

// The low `bytes` bytes of `value`.
std::string BigEndian(uint32_t value, int bytes);

// Nine bytes that promise `length` more.
std::string FrameHead(uint32_t length, uint8_t type, uint8_t flags,
                      uint32_t stream);
std::string Frame(uint8_t type, uint8_t flags, uint32_t stream,
                  const std::string& payload = "");

// One parameter of a SETTINGS frame.
std::string Setting(uint16_t id, uint32_t value);

// An integer with a prefix of `prefix_bits` (RFC 7541, section 5.1), the other
// bits of its first byte taken from `first`.
std::string PackedInteger(uint64_t value, int prefix_bits, uint8_t first = 0);
// A string, without Huffman coding (5.2).
std::string PackedText(const std::string& text);
// A header, both parts literal and never indexed (6.2.3).
std::string PackedHeader(const std::string& name, const std::string& value);

using HeaderList = std::vector<std::pair<std::string, std::string>>;
// All of them, each as PackedHeader does it.
std::string PackedHeaders(const HeaderList& headers);
// What gRPC has before a call's own metadata.
HeaderList CallHeaders(const std::string& path);

// A message of gRPC behind its prefix.
std::string Prefixed(const std::string& message);

std::string Repeated(const std::string& bytes, int times);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_HTTP2_BYTES_H_
