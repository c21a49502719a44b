#include "server/http2/header_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace attnd::server::http2 {
namespace {

class HeaderListTest : public ::testing::Test {
 protected:
  std::optional<uint64_t> Add(absl::string_view hex) {
    const std::string bytes = absl::HexStringToBytes(hex);
    return sizer_.Add(
        Bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  }

  HeaderListSizer sizer_{4096};
};

// A header counts its name, its value, and 32.
constexpr uint64_t kGet = 32 + 7 + 3;
constexpr uint64_t kHttp = 32 + 7 + 4;
constexpr uint64_t kSlash = 32 + 5 + 1;
constexpr uint64_t kExample = 32 + 10 + 15;  // :authority www.example.com
constexpr uint64_t kNoCache = 32 + 13 + 8;   // cache-control no-cache

// RFC 7541, appendix C.3: three requests on one connection.
TEST_F(HeaderListTest, CountsLiteralsAndEntriesOfBothTables) {
  EXPECT_EQ(Add("828684410f7777772e6578616d706c652e636f6d"),
            kGet + kHttp + kSlash + kExample);
  EXPECT_EQ(Add("828684be58086e6f2d6361636865"),
            kGet + kHttp + kSlash + kExample + kNoCache);
  EXPECT_EQ(Add("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565"),
            kGet + kHttp + 1 + kSlash + 10 + kExample + 32 + 10 + 12);
}

// Appendix C.4: the same, in the Huffman code.
TEST_F(HeaderListTest, CountsWhatHuffmanStringsStandFor) {
  EXPECT_EQ(Add("828684418cf1e3c2e5f23a6ba0ab90f4ff"),
            kGet + kHttp + kSlash + kExample);
  EXPECT_EQ(Add("828684be5886a8eb10649cbf"),
            kGet + kHttp + kSlash + kExample + kNoCache);
}

// Appendix C.5: a table of 256 bytes, from which entries are evicted.
TEST_F(HeaderListTest, EvictsAsTheTableIsFull) {
  EXPECT_TRUE(Add("3fe101"  // the table is to have 256 bytes
                  "4803333032580770726976617465611d4d6f6e2c203231204f637420323"
                  "031332032303a31333a323120474d546e1768747470733a2f2f7777772e"
                  "6578616d706c652e636f6d")
                  .has_value());
  EXPECT_TRUE(Add("4803333037c1c0bf").has_value());
  // The fourth entry, 65, is there; a fifth is not.
  EXPECT_EQ(Add("c1"), 32 + 13 + 7);
  EXPECT_EQ(Add("c2"), std::nullopt);
}

TEST_F(HeaderListTest, AnEntryLargerThanTheTableEmptiesIt) {
  ASSERT_TRUE(Add("40016101624001630164").has_value());
  ASSERT_TRUE(Add("bf").has_value());
  std::string large = "40017a7f8120";  // a value of 127 + 33 * 128 - 31 bytes
  const std::string value(127 + 0x01 + 0x20 * 128, 'x');
  ASSERT_GT(value.size(), 4096);
  large += absl::BytesToHexString(value);
  EXPECT_EQ(Add(large), 32 + 1 + value.size());
  EXPECT_EQ(Add("be"), std::nullopt);
}

TEST_F(HeaderListTest, FewBytesMayStandForMany) {
  // A value of 3,000 bytes, then a thousand times the entry that it became.
  ASSERT_TRUE(Add("40017a7fb916" + absl::BytesToHexString(std::string(
                                       127 + 0x39 + 0x16 * 128, 'x')))
                  .has_value());
  std::string bomb;
  for (int i = 0; i < 1000; ++i) bomb += "be";
  EXPECT_EQ(Add(bomb), 1000u * (32 + 1 + 3000));
}

TEST_F(HeaderListTest, RefusesWhatIsMalformed) {
  for (const char* block : {
           "80",                  // entry 0
           "be",                  // an entry of an empty table
           "7f",                  // an index without its end
           "ffffffffffff7f",      // one of more than 32 bits
           "ff8080808080808000",  // one of more digits than such have
           "0005616263",          // a name longer than the block
           "000161",              // a name without a value
           "00016103",            // a value longer than the block
           "00",                  // neither
           "3fe21f",              // a table of 4,097 bytes
           "8220",                // a table's size after a header
           "203e3f0182",          // three sizes
           "00810061",            // Huffman code, badly padded
       }) {
    HeaderListSizer sizer(4096);
    const std::string bytes = absl::HexStringToBytes(block);
    EXPECT_EQ(sizer.Add(Bytes(reinterpret_cast<const uint8_t*>(bytes.data()),
                              bytes.size())),
              std::nullopt)
        << block;
  }
}

TEST_F(HeaderListTest, TakesTableSizesBeforeTheFirstHeader) {
  EXPECT_EQ(Add("203fe11f82"), kGet);
  EXPECT_EQ(Add(""), 0);
}

}  // namespace
}  // namespace attnd::server::http2
