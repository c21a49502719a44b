#include "proto/wire/trace_context.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace attnd::wire {
namespace {

// "vv-tttttttttttttttttttttttttttttttt-ssssssssssssssss-ff"
constexpr size_t kLength = 55;

std::optional<uint8_t> Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;  // capitals are not allowed
}

bool ParseHex(absl::string_view text, absl::Span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto high = Digit(text[2 * i]), low = Digit(text[2 * i + 1]);
    if (!high || !low) return false;
    bytes[i] = *high << 4 | *low;
  }
  return true;
}

template <size_t n>
bool IsZero(const std::array<uint8_t, n>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

template <size_t n>
std::string Hex(const std::array<uint8_t, n>& bytes) {
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view header) {
  if (header.size() < kLength || header[2] != '-' || header[35] != '-' ||
      header[52] != '-') {
    return std::nullopt;
  }
  uint8_t version = 0;
  TraceContext context;
  if (!ParseHex(header.substr(0, 2), absl::MakeSpan(&version, 1)) ||
      !ParseHex(header.substr(3, 32), absl::MakeSpan(context.trace_id)) ||
      !ParseHex(header.substr(36, 16), absl::MakeSpan(context.span_id)) ||
      !ParseHex(header.substr(53, 2), absl::MakeSpan(&context.flags, 1))) {
    return std::nullopt;
  }
  const bool longer = header.size() > kLength;
  if (version == 0xff || (version == 0 && longer) ||
      (longer && header[kLength] != '-') || IsZero(context.trace_id) ||
      IsZero(context.span_id)) {
    return std::nullopt;
  }
  return context;
}

std::string ToTraceparent(const TraceContext& context) {
  return absl::StrCat("00-", TraceIdOf(context), "-", SpanIdOf(context), "-",
                      absl::Hex(context.flags, absl::kZeroPad2));
}

std::string TraceIdOf(const TraceContext& context) {
  return Hex(context.trace_id);
}
std::string SpanIdOf(const TraceContext& context) {
  return Hex(context.span_id);
}

}  // namespace attnd::wire
