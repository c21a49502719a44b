#include "server/http2/huffman.h"

#include <array>
#include <cstddef>

namespace attnd::server::http2 {
namespace {

constexpr int kSymbols = 257;  // each byte, and the end of a string
constexpr int kEndOfString = 256;
constexpr int kLongest = 30;  // bits of a symbol's code

// Bits of each symbol's code. They tell all of the code, which is canonical: of
// two symbols that with fewer bits has the lower code, and of two with as many
// that with the lower number.
constexpr std::array<uint8_t, kSymbols> kBits = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,  //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,  //
    6,  10, 10, 12, 13, 6,  8,  11, 10, 10, 8,  11, 8,  6,  6,  6,   //
    5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8,  15, 6,  12, 10,  //
    13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,   //
    7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8,  13, 19, 13, 14, 6,   //
    15, 5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,   //
    6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7,  15, 11, 14, 13, 28,  //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,  //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,  //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,  //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,  //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,  //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,  //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,  //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,  //
    30};

// For each number of bits the codes that have it: the first, and how many.
struct Codes {
  std::array<uint32_t, kLongest + 1> first{};
  std::array<uint32_t, kLongest + 1> count{};
};

constexpr Codes kCodes = [] {
  Codes codes;
  for (const uint8_t bits : kBits) ++codes.count[bits];
  for (int bits = 1; bits <= kLongest; ++bits) {
    codes.first[bits] = (codes.first[bits - 1] + codes.count[bits - 1]) << 1;
  }
  return codes;
}();
// The last code of all, and so all ones.
static_assert(kCodes.first[kLongest] + kCodes.count[kLongest] ==
              1u << kLongest);
static_assert(kBits[kEndOfString] == kLongest);

}  // namespace

std::optional<uint32_t> HuffmanLength(Bytes encoded) {
  uint32_t symbols = 0;
  uint32_t code = 0;  // of the symbol that has begun
  int bits = 0;
  for (const uint8_t byte : encoded) {
    for (int at = 7; at >= 0; --at) {
      code = code << 1 | (byte >> at & 1);
      ++bits;
      if (code - kCodes.first[bits] >= kCodes.count[bits]) continue;
      if (bits == kLongest && code == (1u << kLongest) - 1) return std::nullopt;
      ++symbols;
      code = 0;
      bits = 0;
    }
  }
  if (bits > 7 || code != (1u << bits) - 1) return std::nullopt;
  return symbols;
}

}  // namespace attnd::server::http2
