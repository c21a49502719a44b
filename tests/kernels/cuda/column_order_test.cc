// In which order blocks of columns come: none is left out or comes twice, and a
// head's come in order, as those that take turns need it.

#include "kernels/cuda/tile/column_order.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace attnd::cuda {
namespace {

TEST(ColumnOrder, EveryBlockComesOnceAndAHeadsInOrder) {
  for (const uint32_t heads : {1, 2, 3, 6, 7}) {
    for (const uint32_t blocks : {1, 2, 5, 12, 13}) {
      for (const ColumnOrder& order :
           {ColumnOrder{heads, blocks}, ColumnOrder{heads, blocks, 2},
            ColumnOrder{heads, blocks, 3}, ColumnOrder{heads, blocks, 2, 1},
            ColumnOrder{heads, blocks, 2, 4}, ColumnOrder{heads, blocks, 2, 5},
            ColumnOrder{heads, blocks, 2, 20}}) {
        SCOPED_TRACE(::testing::Message()
                     << heads << " heads of " << blocks << " blocks, "
                     << order.heads_together << " together, in chunks of "
                     << order.chunk_blocks);
        std::vector<uint32_t> next(heads, 0);
        for (uint32_t index = 0; index < heads * blocks; ++index) {
          const ColumnPlace place = PlaceOf(order, index);
          ASSERT_LT(place.head, heads);
          EXPECT_EQ(place.block, next[place.head]++) << index;
        }
      }
    }
  }
}

// The pairs of a head and a block, as one number of two digits.
std::vector<uint32_t> Places(const ColumnOrder& order) {
  std::vector<uint32_t> places;
  for (uint32_t index = 0; index < order.heads * order.blocks; ++index) {
    const auto [head, block] = PlaceOf(order, index);
    places.push_back(10 * head + block);
  }
  return places;
}

TEST(ColumnOrder, ASectionsHeadsComeBlockByBlock) {
  EXPECT_EQ(Places({.heads = 3, .blocks = 3, .heads_together = 2}),
            (std::vector<uint32_t>{0, 10, 1, 11, 2, 12, 20, 21, 22}));
}

TEST(ColumnOrder, ASectionsHeadsComeChunkByChunk) {
  EXPECT_EQ(
      Places({.heads = 3, .blocks = 5, .heads_together = 2, .chunk_blocks = 2}),
      (std::vector<uint32_t>{0, 10, 11, 1, 2, 12, 13, 3, 4, 14,  //
                             20, 21, 22, 23, 24}));
  EXPECT_EQ(
      Places({.heads = 2, .blocks = 4, .heads_together = 2, .chunk_blocks = 2}),
      (std::vector<uint32_t>{0, 1, 10, 11, 2, 3, 12, 13}));
}

TEST(ColumnOrder, InTurnsHeadsComeTogetherThatBeginTogether) {
  for (const auto& [blocks, heads] :
       {std::pair<uint32_t, uint32_t>{1, 132}, {50, 2}, {67, 1}, {500, 1}}) {
    const ColumnOrder order = OrderInTurns(8, blocks, 132, true);
    EXPECT_EQ(order.heads_together, heads) << blocks;
    EXPECT_EQ(order.chunk_blocks, 0) << blocks;
  }
}

TEST(ColumnOrder, InTurnsLongHeadsThatAreNotCachedComeInChunks) {
  EXPECT_EQ(OrderInTurns(8, 132, 132, false).chunk_blocks, 0);
  const ColumnOrder order = OrderInTurns(8, 133, 132, false);
  EXPECT_EQ(order.heads_together, 2);
  EXPECT_EQ(order.chunk_blocks, 132);
}

TEST(ColumnsGoUp, OfAsManyHeadsAsBeginTogether) {
  const auto up = [](int64_t kv_heads, int64_t blocks, int cluster) {
    std::vector<int> heads;
    for (int64_t head = 0; head < kv_heads; ++head) {
      if (ColumnsGoUp(head, kv_heads, blocks, cluster)) heads.push_back(head);
    }
    return heads;
  };
  EXPECT_EQ(up(6, 128, 1), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(up(6, 64, 1), (std::vector<int>{2, 3}));
  EXPECT_EQ(up(6, 64, 2), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(up(6, 32, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(up(6, 1, 1), std::vector<int>{});
  EXPECT_EQ(up(6, 0, 1), std::vector<int>{});
}

// A single head after those that go down in pairs, or alone.
TEST(ColumnsGoUp, OfALastLongHead) {
  EXPECT_TRUE(ColumnsGoUp(2, 3, 129, 1));
  EXPECT_FALSE(ColumnsGoUp(2, 3, 128, 1));
  EXPECT_TRUE(ColumnsGoUp(2, 3, 65, 2));
  EXPECT_TRUE(ColumnsGoUp(0, 1, 200, 1));
  EXPECT_FALSE(ColumnsGoUp(0, 2, 200, 1));
}

}  // namespace
}  // namespace attnd::cuda
