#include "tests/integration/http2_bytes.h"

#include "absl/strings/str_cat.h"

namespace attnd::testing {

std::string BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += char(value >> (8 * i) & 0xff);
  return text;
}

std::string FrameHead(uint32_t length, uint8_t type, uint8_t flags,
                      uint32_t stream) {
  return absl::StrCat(BigEndian(length, 3), BigEndian(type, 1),
                      BigEndian(flags, 1), BigEndian(stream, 4));
}

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream,
                  const std::string& payload) {
  return absl::StrCat(FrameHead(payload.size(), type, flags, stream), payload);
}

std::string Setting(uint16_t id, uint32_t value) {
  return absl::StrCat(BigEndian(id, 2), BigEndian(value, 4));
}

std::string PackedInteger(uint64_t value, int prefix_bits, uint8_t first) {
  const uint64_t most = (1u << prefix_bits) - 1;
  if (value < most) return std::string(1, char(first | value));
  std::string text(1, char(first | most));
  for (value -= most; value >= 0x80; value >>= 7) {
    text += char((value & 0x7f) | 0x80);
  }
  return text + char(value);
}

std::string PackedText(const std::string& text) {
  return absl::StrCat(PackedInteger(text.size(), 7), text);
}

std::string PackedHeader(const std::string& name, const std::string& value) {
  return absl::StrCat("\x10", PackedText(name), PackedText(value));
}

std::string PackedHeaders(const HeaderList& headers) {
  std::string block;
  for (const auto& [name, value] : headers) block += PackedHeader(name, value);
  return block;
}

HeaderList CallHeaders(const std::string& path) {
  return {{":method", "POST"}, {":scheme", "http"},
          {":path", path},     {":authority", "test"},
          {"te", "trailers"},  {"content-type", "application/grpc"}};
}

std::string Prefixed(const std::string& message) {
  return absl::StrCat(BigEndian(0, 1), BigEndian(message.size(), 4), message);
}

std::string Repeated(const std::string& bytes, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += bytes;
  return all;
}

}  // namespace attnd::testing
