#include "server/http2/header_block.h"

namespace attnd::server::http2 {
namespace {

// SETTINGS_HEADER_TABLE_SIZE, as it is unless a server changes it. Attnd's does
// not.
constexpr uint32_t kTableBytes = 4096;
// How far beyond the limit a list may be for gRPC to refuse it.
constexpr uint64_t kWithinReason = 4;
// What a client puts into a frame, at least, unless it is the last.
constexpr uint64_t kFrameBytes = 16 << 10;
// A block keeps this much memory for the next one.
constexpr size_t kKeptBytes = 4 << 10;

}  // namespace

HeaderBlock::HeaderBlock(uint64_t max_list_bytes)
    : max_list_bytes_(max_list_bytes),
      most_bytes_(kWithinReason * max_list_bytes + kFrameBytes),
      sizer_(kTableBytes) {}

std::optional<Violation> HeaderBlock::Begin(const Frame& frame) {
  is_continued_ = is_open_;
  if (!is_open_) {
    bytes_.clear();
    stream_ = frame.stream;
  }
  is_open_ = true;
  if (bytes_.size() + frame.length > most_bytes_) {
    return Violation{ErrorCode::kEnhanceYourCalm, "headers without end"};
  }
  return std::nullopt;
}

void HeaderBlock::Append(Bytes payload) {
  bytes_.insert(bytes_.end(), payload.begin(), payload.end());
}

std::optional<Violation> HeaderBlock::End(const Frame& frame) {
  if (frame.type == kHeaders) {
    if (const auto violation = TrimFirst(frame)) return violation;
  }
  if (!frame.has(kEndHeaders)) return std::nullopt;
  is_open_ = false;
  const std::optional<uint64_t> list_bytes = sizer_.Add(bytes_);
  if (!list_bytes.has_value()) {
    return Violation{ErrorCode::kCompressionError, "headers are malformed"};
  }
  const uint64_t most =
      is_continued_ ? max_list_bytes_ : kWithinReason * max_list_bytes_;
  if (*list_bytes > most) {
    return Violation{ErrorCode::kEnhanceYourCalm, "headers are too large"};
  }
  if (bytes_.capacity() > kKeptBytes) std::vector<uint8_t>().swap(bytes_);
  return std::nullopt;
}

// Section 6.2 of RFC 9113.
std::optional<Violation> HeaderBlock::TrimFirst(const Frame& frame) {
  const size_t pad_field = frame.has(kPadded) ? 1 : 0;
  const size_t before = pad_field + (frame.has(kHasPriority) ? 5 : 0);
  if (bytes_.size() < before) {
    return Violation{ErrorCode::kFrameSizeError, "headers lack their fields"};
  }
  const size_t padding = pad_field > 0 ? bytes_[0] : 0;
  if (bytes_.size() < before + padding) {
    return Violation{ErrorCode::kProtocolError, "padding is all there is"};
  }
  bytes_.resize(bytes_.size() - padding);
  bytes_.erase(bytes_.begin(), bytes_.begin() + before);
  return std::nullopt;
}

}  // namespace attnd::server::http2
