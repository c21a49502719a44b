#include "tests/integration/malformed/plain_headers.h"

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace attnd::testing {
namespace {

// RFC 7541, appendix A: :status with its seven values.
constexpr uint64_t kFirstStatus = 8;
constexpr const char* kStatuses[] = {"200", "204", "206", "304",
                                     "400", "404", "500"};
constexpr uint64_t kLastStatic = 61;

// Reads a block from its start; `bad` once it cannot be read.
struct Reader {
  const std::string& block;
  size_t at = 0;
  bool bad = false;

  uint8_t Byte() {
    bad = bad || at == block.size();
    return bad ? 0 : static_cast<uint8_t>(block[at++]);
  }

  // RFC 7541, section 5.1, up to 2^28.
  uint64_t Integer(uint8_t first, int prefix_bits) {
    const uint64_t most = (1u << prefix_bits) - 1;
    uint64_t value = first & most;
    if (value < most) return value;
    for (int shift = 0; shift < 28; shift += 7) {
      const uint8_t byte = Byte();
      value += static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    bad = true;
    return 0;
  }

  std::string Text() {
    const uint8_t first = Byte();
    const uint64_t size = Integer(first, 7);
    bad = bad || size > block.size() - at;
    if (bad) return "";
    at += size;
    const bool huffman = (first & 0x80) != 0;
    return huffman ? "" : block.substr(at - size, size);
  }
};

// Whether `index` is one of :status in the static table.
bool IsStatus(uint64_t index) {
  return index >= kFirstStatus && index < kFirstStatus + std::size(kStatuses);
}

}  // namespace

std::optional<std::map<std::string, std::string>> ReadPlainHeaders(
    const std::string& block) {
  std::map<std::string, std::string> headers;
  Reader reader = {block};
  while (reader.at < block.size() && !reader.bad) {
    const uint8_t first = reader.Byte();
    if ((first & 0x80) != 0) {  // indexed, name and value
      const uint64_t index = reader.Integer(first, 7);
      reader.bad = reader.bad || index > kLastStatic;
      if (IsStatus(index)) headers[":status"] = kStatuses[index - kFirstStatus];
      continue;
    }
    if ((first & 0xe0) == 0x20) {  // the size of the table
      reader.Integer(first, 5);
      continue;
    }
    const uint64_t index = reader.Integer(first, (first & 0x40) != 0 ? 6 : 4);
    reader.bad = reader.bad || index > kLastStatic;
    const std::string name = index == 0        ? reader.Text()
                             : IsStatus(index) ? ":status"
                                               : "";
    headers[name] = reader.Text();
  }
  if (reader.bad) return std::nullopt;
  return headers;
}

}  // namespace attnd::testing
