#include "kernels/cuda/plan.h"

#include "gtest/gtest.h"

namespace attnd::cuda {
namespace {

// The tiles of 128 rows, of heads that have as many queries as keys.
Tiles TilesOf(int64_t len, int64_t dim, int64_t heads, bool causal = true,
              int64_t group = 1) {
  const KvSegment segment{.len = len};
  Problem p;
  p.batch = 1;
  p.q_len = len;
  p.kv_heads = heads;
  p.q_heads = heads * group;
  p.head_dim = p.value_dim = dim;
  p.q.dtype = DType::kBF16;
  p.kv = {&segment, 1};
  p.mask.causal = causal;
  return RowTiles(p, Kernel{.rows = 128});
}

TEST(RowTilesTest, CountsEveryBlockOfRows) {
  EXPECT_EQ(TilesOf(512, 64, 10).count(), 40);
  EXPECT_EQ(TilesOf(513, 64, 10).count(), 50);
  EXPECT_EQ(TilesOf(0, 64, 10).count(), 0);
}

TEST(RowTilesTest, HeadsOfOneKvHeadTakeTurnsWhereTilesAreAlike) {
  const Tiles tiles = TilesOf(512, 256, 256, false, 4);
  EXPECT_EQ(tiles.heads_together, 4);
  EXPECT_FALSE(tiles.heads_follow);
}

TEST(RowTilesTest, MoreTakeTurnsUnderAMaskUpToTwoTilesAMultiprocessor) {
  const Tiles tiles = TilesOf(512, 64, 1024);
  EXPECT_EQ(tiles.heads_together, 66);
  EXPECT_FALSE(tiles.heads_follow);
  EXPECT_EQ(TilesOf(512, 64, 8).heads_together, 8);  // no more than there are
}

TEST(RowTilesTest, NoMoreThanTheCacheHolds) {
  const Tiles tiles = TilesOf(8192, 256, 16);
  EXPECT_EQ(tiles.heads_together, 2);
  EXPECT_FALSE(tiles.heads_follow);  // long heads never do
}

TEST(RowTilesTest, ShortHeadsOfWhichItHoldsFewFollowOneAnother) {
  const Tiles tiles = TilesOf(512, 256, 256);
  EXPECT_EQ(tiles.heads_together, 32);
  EXPECT_TRUE(tiles.heads_follow);
  EXPECT_FALSE(TilesOf(512, 128, 256).heads_follow);  // it holds twice as many
}

}  // namespace
}  // namespace attnd::cuda
