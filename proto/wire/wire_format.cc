#include "proto/wire/wire_format.h"

#include <cstring>

namespace attnd::wire {

int64_t VarintBytes(uint64_t value) {
  int64_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

void AppendVarint(uint64_t value, std::string& out) {
  char bytes[10];
  out.append(bytes, WriteVarint(value, bytes) - bytes);
}

void AppendTag(Tag tag, std::string& out) {
  char bytes[10];
  out.append(bytes, WriteTag(tag, bytes) - bytes);
}

void AppendField(int number, absl::string_view bytes, std::string& out) {
  AppendTag({number, WireType::kBytes}, out);
  AppendVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

bool IsUtf8(absl::string_view text) {
  const auto* at = reinterpret_cast<const uint8_t*>(text.data());
  const auto* end = at + text.size();
  while (at < end) {
    const uint8_t lead = *at++;
    if (lead < 0x80) continue;
    // The first continuation byte's range rules out overlong forms,
    // surrogates and what lies past U+10FFFF.
    int more = 0;
    uint8_t low = 0x80, high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      more = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return false;
    }
    for (; more > 0; --more, low = 0x80, high = 0xBF) {
      if (at == end || *at < low || *at > high) return false;
      ++at;
    }
  }
  return true;
}

Reader::Reader(absl::Span<const absl::string_view> fragments)
    : rest_(fragments) {
  for (absl::string_view fragment : fragments) left_ += fragment.size();
}

void Reader::NextFragment() {
  while (at_ == end_) {
    at_ = rest_.front().data();
    end_ = at_ + rest_.front().size();
    rest_.remove_prefix(1);
  }
}

bool Reader::ReadVarint(int max_bytes, uint8_t last_max, uint64_t& value) {
  value = 0;
  for (int i = 0; i < max_bytes; ++i) {
    if (left_ == 0) return false;
    if (at_ == end_) NextFragment();
    const uint8_t byte = *at_++;
    --left_;
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) return i + 1 < max_bytes || byte <= last_max;
  }
  return false;
}

bool Reader::ReadTag(Tag& tag) {
  uint64_t value;
  if (!ReadByte(value) && !ReadVarint(5, 0xF, value)) return false;  // 32 bits
  tag.number = static_cast<int>(value >> 3);
  tag.type = static_cast<WireType>(value & 7);
  return tag.number != 0 && (value & 7) <= 5;
}

bool Reader::ReadLength(int64_t& length) {
  uint64_t value;
  if (!ReadByte(value) && !ReadVarint(5, 0x7, value)) return false;  // 31 bits
  length = static_cast<int64_t>(value);
  return length <= left_;
}

void Reader::Skip(int64_t n) {
  Consume(n, [](absl::string_view) {});
}

void Reader::CopyTo(char* out, int64_t n) {
  Consume(n, [&out](absl::string_view view) {
    std::memcpy(out, view.data(), view.size());
    out += view.size();
  });
}

}  // namespace attnd::wire
