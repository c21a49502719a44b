#include "kernels/cuda/launch/launch.h"

#include <cstring>

#include "gtest/gtest.h"
#include "kernels/cuda/sm80/decode_tiles.h"

namespace attnd::cuda {
namespace {

// The tiles of 128 rows, of heads that have as many queries as keys.
Tiles TilesOf(int64_t len, int64_t dim, int64_t heads, bool causal = true,
              int64_t group = 1) {
  KvSegment segment;
  segment.len = len;
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

// A problem to be decoded, and all that may keep it from being read ahead.
struct Decoded {
  int64_t lens[2] = {90, 100};
  KvSegment segments[2];
  Problem problem;
  Kernel kernel{.rows = 16, .dim = 128};

  Decoded() {
    for (KvSegment& s : segments) {
      s.len = 100;
      s.k = s.v = View(1024);
    }
    problem.batch = 2;
    problem.q_len = 3;
    problem.q_heads = 8;
    problem.kv_heads = 2;
    problem.head_dim = problem.value_dim = 128;
    problem.q = View(4096);
    problem.kv = {segments, 1};
  }
  static ConstTensorView View(uintptr_t address) {
    ConstTensorView view;
    view.data = reinterpret_cast<const void*>(address);
    view.dtype = DType::kBF16;
    view.batch_stride = 100000;
    view.token_stride = 1024;
    view.head_stride = 128;
    return view;
  }
  ReadAhead Ahead() const { return sm80::DecodeAhead(problem, kernel); }
};

TEST(DecodeAheadTest, SaysWhereABlockReads) {
  const Decoded decoded;
  const ReadAhead ahead = decoded.Ahead();
  EXPECT_EQ(ahead.columns, 100);
  EXPECT_EQ(ahead.kv_heads, 2);
  EXPECT_EQ(ahead.group, 4);
  EXPECT_EQ(ahead.rows, 12);
  EXPECT_EQ(ahead.part_columns, 4096);
  EXPECT_EQ(ahead.q.data, decoded.problem.q.data);
  EXPECT_EQ(ahead.k.data, decoded.segments[0].k.data);
  EXPECT_EQ(ahead.v.token_stride, 1024);
}

TEST(DecodeAheadTest, PartsOfLongSequencesAreLonger) {
  Decoded decoded;
  decoded.segments[0].len = 300000;
  EXPECT_EQ(decoded.Ahead().part_columns, 4736);  // 64 of them, whole tiles
}

TEST(DecodeAheadTest, NothingWhereABlockWouldHaveToAskFirst) {
  const auto columns = [](auto change) {
    Decoded decoded;
    change(decoded);
    return decoded.Ahead().columns;
  };
  EXPECT_EQ(columns([](Decoded&) {}), 100);
  // Sequences of lengths of their own, several segments.
  EXPECT_EQ(columns([](Decoded& d) { d.problem.q_lens = d.lens; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.segments[0].lens = d.lens; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.problem.kv = d.segments; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.problem.kv = {}; }), 0);
  // A window, which may hide what is read.
  EXPECT_EQ(columns([](Decoded& d) { d.problem.mask.left = 99; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.problem.mask.left = 100; }), 100);
  EXPECT_EQ(columns([](Decoded& d) { d.problem.mask.causal = true; }), 100);
  // Rows that are not copied whole.
  EXPECT_EQ(columns([](Decoded& d) { d.problem.head_dim = 120; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.problem.value_dim = 120; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.kernel.dim = 256; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.problem.q.token_stride = 1028; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.segments[0].k.head_stride = 4; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.segments[0].v.batch_stride = 2; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.segments[0].v = Decoded::View(1032); }),
            0);
  // More than decoding, or 32 bits, can count.
  EXPECT_EQ(columns([](Decoded& d) { d.problem.q_len = 17; }), 0);
  EXPECT_EQ(columns([](Decoded& d) { d.segments[0].len = int64_t{1} << 31; }),
            0);
}

class LaunchTest : public ::testing::Test {
 protected:
  // Adds the problem as one with these tiles; where it is in the block.
  BlobOffset Add(const Tiles& tiles) {
    ForwardArgs args;
    args.problem = decoded.problem;
    const BlobOffset problem = blob.Append(args);
    launch.Add(blob, problem, tiles, {}, decoded.Ahead());
    return problem;
  }

  const Decoded decoded;
  Blob blob;
  Launch launch{decoded.kernel};
};

TEST_F(LaunchTest, ReadsAheadForOneProblemAlone) {
  Add(sm80::DecodeTiles(decoded.problem));
  EXPECT_EQ(launch.ahead().columns, 100);
  Add(sm80::DecodeTiles(decoded.problem));
  EXPECT_EQ(launch.ahead().columns, 0);
}

TEST_F(LaunchTest, PutsLongProblemsFirstAndEqualOnesAsTheyCame) {
  BlobOffset problems[4];
  const int64_t columns[] = {100, 300, 100, 200};
  for (int i = 0; i < 4; ++i) {
    problems[i] = Add({.heads = i + 1, .row_blocks = 1, .columns = columns[i]});
  }
  launch.Place(blob);
  ASSERT_EQ(launch.num_runs(), 4);
  TileRun runs[4];
  std::memcpy(runs, blob.bytes().data() + launch.runs(), sizeof(runs));
  const int order[] = {1, 3, 0, 2};
  int64_t tiles = 0;
  for (int n = 0; n < 4; ++n) {
    EXPECT_EQ(runs[n].problem, problems[order[n]]);
    EXPECT_EQ(runs[n].first_tile, tiles);
    tiles += order[n] + 1;
  }
  EXPECT_EQ(launch.first_run().problem, problems[1]);
  EXPECT_EQ(launch.tiles(), tiles);
}

}  // namespace
}  // namespace attnd::cuda
