#include "server/http2/huffman.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace attnd::server::http2 {
namespace {

std::optional<uint32_t> Length(absl::string_view hex) {
  const std::string bytes = absl::HexStringToBytes(hex);
  return HuffmanLength(
      Bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

// The strings of RFC 7541, appendix C.4 and C.6.
TEST(HuffmanTest, CountsTheSymbolsOfAString) {
  EXPECT_EQ(Length("f1e3c2e5f23a6ba0ab90f4ff"), 15);  // www.example.com
  EXPECT_EQ(Length("a8eb10649cbf"), 8);               // no-cache
  EXPECT_EQ(Length("25a849e95ba97d7f"), 10);          // custom-key
  EXPECT_EQ(Length("25a849e95bb8e8b4bf"), 12);        // custom-value
  EXPECT_EQ(Length("d07abe941054d444a8200595040b8166e082a62d1bff"), 29);
  EXPECT_EQ(Length("94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291"
                   "f9587316065c003ed4ee5b1063d5007"),
            56);
}

TEST(HuffmanTest, AnEmptyStringHasNoSymbols) { EXPECT_EQ(Length(""), 0); }

// Bytes that text does not have take up to 30 bits: 0 has thirteen, 255 has 26.
TEST(HuffmanTest, KnowsTheLongCodes) {
  EXPECT_EQ(Length("ffc7"), 1);  // 0
  EXPECT_EQ(Length("ffffffff"), std::nullopt);
  EXPECT_EQ(Length("fffffbbf"), 1);  // 255: 26 bits, six of padding
}

TEST(HuffmanTest, RefusesPaddingThatIsNotTheEndsBeginning) {
  EXPECT_EQ(Length("18"), std::nullopt);  // 'a' is 00011, then zeros
  EXPECT_EQ(Length("1f"), 1);
  EXPECT_EQ(Length("1fff"), std::nullopt);  // more than seven bits of it
}

TEST(HuffmanTest, RefusesTheEndOfStringSymbol) {
  EXPECT_EQ(Length("fffffffc"), std::nullopt);
  EXPECT_EQ(Length("fffffffcff"), std::nullopt);
}

}  // namespace
}  // namespace attnd::server::http2
