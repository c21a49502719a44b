#include "server/http2/frame_rules.h"

#include <array>

namespace attnd::server::http2 {
namespace {

enum class OnStream { kNever, kAlways, kEither };

struct Rule {
  OnStream on_stream;
  uint32_t least_bytes;
  uint32_t most_bytes;
};

constexpr uint32_t kAnyLength = 0xffffff;
// By type.
constexpr std::array<Rule, 10> kRules = {{
    {OnStream::kAlways, 0, kAnyLength},  // DATA
    {OnStream::kAlways, 0, kAnyLength},  // HEADERS
    {OnStream::kAlways, 5, 5},           // PRIORITY
    {OnStream::kAlways, 4, 4},           // RST_STREAM
    {OnStream::kNever, 0, kAnyLength},   // SETTINGS
    {OnStream::kAlways, 0, kAnyLength},  // PUSH_PROMISE
    {OnStream::kNever, 8, 8},            // PING
    {OnStream::kNever, 8, kAnyLength},   // GOAWAY
    {OnStream::kEither, 4, 4},           // WINDOW_UPDATE
    {OnStream::kAlways, 0, kAnyLength},  // CONTINUATION
}};
constexpr uint32_t kSettingBytes = 6;

// Identifiers of settings.
constexpr uint16_t kEnablePush = 2;
constexpr uint16_t kInitialWindowSize = 4;
constexpr uint16_t kMaxFrameSize = 5;

constexpr uint32_t kMostWindow = 0x7fffffff;
constexpr uint32_t kLeastMaxFrame = 1 << 14;
constexpr uint32_t kMostMaxFrame = (1 << 24) - 1;

}  // namespace

std::optional<Violation> CheckFrame(const Frame& frame,
                                    uint32_t max_frame_bytes) {
  if (frame.length > max_frame_bytes) {
    return Violation{ErrorCode::kFrameSizeError, "a frame is too long"};
  }
  if (frame.type >= kRules.size()) return std::nullopt;
  const Rule& rule = kRules[frame.type];
  if (frame.type == kPushPromise) {
    return Violation{ErrorCode::kProtocolError, "a client pushes"};
  }
  if (rule.on_stream == OnStream::kAlways && frame.stream == 0) {
    return Violation{ErrorCode::kProtocolError, "a frame lacks its stream"};
  }
  if (rule.on_stream == OnStream::kNever && frame.stream != 0) {
    return Violation{ErrorCode::kProtocolError,
                     "a frame for the connection is on a stream"};
  }
  const bool is_whole_settings =
      frame.type != kSettings ||
      (frame.has(kAck) ? frame.length == 0 : frame.length % kSettingBytes == 0);
  const bool lacks_pad_length =
      frame.type == kData && frame.has(kPadded) && frame.length == 0;
  if (frame.length < rule.least_bytes || frame.length > rule.most_bytes ||
      !is_whole_settings || lacks_pad_length) {
    return Violation{ErrorCode::kFrameSizeError,
                     "a frame's length is not its type's"};
  }
  return std::nullopt;
}

std::optional<Violation> CheckSetting(uint16_t id, uint32_t value) {
  switch (id) {
    case kEnablePush:
      if (value <= 1) break;
      return Violation{ErrorCode::kProtocolError, "ENABLE_PUSH is not 0 or 1"};
    case kInitialWindowSize:
      if (value <= kMostWindow) break;
      return Violation{ErrorCode::kFlowControlError,
                       "INITIAL_WINDOW_SIZE is out of range"};
    case kMaxFrameSize:
      if (value >= kLeastMaxFrame && value <= kMostMaxFrame) break;
      return Violation{ErrorCode::kProtocolError,
                       "MAX_FRAME_SIZE is out of range"};
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace attnd::server::http2
