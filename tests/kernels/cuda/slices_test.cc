// How launches are cut into slices: no tile is left out or comes twice, and
// slices take about the same time.

#include "kernels/cuda/fused/slices.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/sm80/decode_tiles.h"
#include "kernels/cuda/tile/column_order.h"
#include "kernels/mask.h"
#include "tests/kernels/random_problem.h"

namespace attnd::cuda {
namespace {

using testing::ProblemOptions;
using testing::RandomProblem;

constexpr Gpu kGpu = {.capability = 90, .multiprocessors = 10};

// Their numbers alone matter.
constexpr Kernel kStays = {
    .name = "stays", .rows = 128, .cols = 128, .dim = 128, .persistent = true};
constexpr Kernel kPairs = {.name = "pairs",
                           .rows = 64,
                           .cols = 128,
                           .dim = 256,
                           .persistent = true,
                           .cluster = 2};
constexpr Kernel kPlain = {.name = "plain", .rows = 64, .cols = 64, .dim = 128};
constexpr Kernel kDecodes = {
    .name = "decodes", .rows = 16, .cols = 16, .dim = 128};
constexpr Kernel kCopies = {.name = "copies", .rows = 128};

class SlicesTest : public ::testing::Test {
 protected:
  void Add(Launch& launch, const Problem& p, const Tiles& tiles) {
    ForwardArgs args;
    args.problem = p;
    launch.Add(blob_, blob_.Append(args), tiles);
  }
  // Of all the problem's rows.
  Launch RowsOf(const Problem& p, const Kernel& kernel) {
    Launch launch(kernel);
    Add(launch, p, RowTiles(p, kernel));
    launch.Place(blob_);
    return launch;
  }
  // Where the launch's slices end.
  static std::vector<Slice> Cut(const Launch& launch, double micros,
                                int least_waves = 1) {
    std::vector<Slice> slices;
    for (int64_t first = 0; first < launch.tiles();) {
      slices.push_back(CutSlice(launch, first, micros, kGpu, least_waves));
      if (slices.back().end <= first) {
        ADD_FAILURE() << "a slice without a tile";
        break;
      }
      first = slices.back().end;
    }
    return slices;
  }
  static std::vector<int64_t> Counts(const std::vector<Slice>& slices) {
    std::vector<int64_t> counts;
    int64_t first = 0;
    for (const Slice& slice : slices) {
      counts.push_back(slice.end - first);
      first = slice.end;
    }
    return counts;
  }

  Blob blob_;
};

TEST_F(SlicesTest, EveryTileOfRandomGroupsIsInOneSlice) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::vector<std::unique_ptr<RandomProblem>> problems;
    for (uint32_t n = 0; n < 5; ++n) {
      ProblemOptions options = testing::ForwardOnly();
      options.max_q_len = options.max_kv_len = 1000;
      problems.push_back(
          std::make_unique<RandomProblem>(10 * seed + n, options));
    }
    const Kernel* kernels[] = {&kStays, &kPairs, &kPlain, &kCopies};
    for (const Kernel* kernel : kernels) {
      for (bool columns : {false, true}) {
        Launch launch(*kernel);
        for (const auto& p : problems) {
          if (columns && kernel->cols == 0) continue;
          Add(launch, p->problem(),
              columns ? ColumnTiles(p->problem(), *kernel)
                      : RowTiles(p->problem(), *kernel));
        }
        launch.Place(blob_);
        const double all = MostMicros(launch);
        for (double micros : {0.001, all / 20, all / 3, 2 * all}) {
          const std::vector<Slice> slices = Cut(launch, micros);
          const int64_t end = slices.empty() ? 0 : slices.back().end;
          EXPECT_EQ(end, launch.tiles());
          if (micros > all) {
            EXPECT_LE(slices.size(), 1);
          }
        }
      }
    }
  }
}

// One problem, whose tensors are nowhere.
struct Shape {
  int64_t batch = 1, len = 1, heads = 1;
  bool causal = false;
  int64_t left = -1;
  int64_t group = 1;
};
struct Sized {
  explicit Sized(const Shape& shape) {
    segment.len = shape.len;
    p.batch = shape.batch;
    p.q_len = shape.len;
    p.kv_heads = shape.heads / shape.group;
    p.q_heads = shape.heads;
    p.head_dim = p.value_dim = 128;
    p.q.dtype = DType::kBF16;
    p.kv = {&segment, 1};
    p.mask = {.causal = shape.causal, .left = shape.left};
  }
  Sized(const Sized&) = delete;
  Sized& operator=(const Sized&) = delete;

  KvSegment segment;
  Problem p;
};

TEST_F(SlicesTest, SlicesEndWithAWaveOfTiles) {
  const Sized sized({.len = 12800, .heads = 5});
  for (const auto& [kernel, wave] :
       {std::pair<const Kernel*, int64_t>{&kStays, 10},
        {&kPairs, 5},
        {&kPlain, 20}}) {
    const Launch launch = RowsOf(sized.p, *kernel);
    std::vector<int64_t> counts = Counts(Cut(launch, MostMicros(launch) / 7));
    ASSERT_GE(counts.size(), 5);
    counts.pop_back();
    for (int64_t count : counts) EXPECT_EQ(count % wave, 0) << kernel->name;
  }
}

TEST_F(SlicesTest, SlicesHaveSomeWavesThoughTheyTakeLonger) {
  const Sized sized({.len = 12800, .heads = 2});
  const Launch launch = RowsOf(sized.p, kStays);
  EXPECT_EQ(Counts(Cut(launch, MostMicros(launch) / 30, 4)),
            (std::vector<int64_t>{40, 40, 40, 40, 40}));
}

// Sixteen times as long as asked for is 25 of 200 tiles here, and no wave.
TEST_F(SlicesTest, SlicesHaveFewerWavesWhereTilesTakeLong) {
  const Sized sized({.len = 12800, .heads = 2});
  const Launch launch = RowsOf(sized.p, kStays);
  EXPECT_EQ(Counts(Cut(launch, MostMicros(launch) / 128, 4)),
            std::vector<int64_t>(10, 20));
  EXPECT_EQ(Counts(Cut(launch, 0.001, 4)), std::vector<int64_t>(20, 10));
}

TEST_F(SlicesTest, ACrumbIsTakenAlong) {
  const Sized sized({.len = 128 * 44, .heads = 1});
  const Launch launch = RowsOf(sized.p, kStays);
  EXPECT_EQ(Counts(Cut(launch, MostMicros(launch) / 8, 4)),
            (std::vector<int64_t>{44}));
}

// What a slice of the launch's rows takes, in pairs of a row and a column that
// it sees, found row by row. In sections of heads that come together, block by
// block, the last rows first.
std::vector<double> RowPairs(const Problem& p, const Tiles& tiles, int rows) {
  std::vector<double> pairs;
  const int64_t together = tiles.heads_together;
  const auto add = [&](int64_t first, int64_t count) {
    for (int64_t block = tiles.row_blocks - 1; block >= 0; --block) {
      for (int64_t head = first; head < first + count; ++head) {
        const int64_t b = head / p.q_heads;
        const RowIntervals intervals = MakeRowIntervals(p, b, p.kv[0]);
        double seen = 0;
        for (int64_t row = block * rows;
             row < std::min((block + 1) * rows, intervals.rows); ++row) {
          seen += static_cast<double>(intervals.Row(row).size());
        }
        pairs.push_back(seen);
      }
    }
  };
  const int64_t rest = tiles.heads % together;
  if (rest > 0) add(0, rest);
  for (int64_t head = rest; head < tiles.heads; head += together) {
    add(head, together);
  }
  return pairs;
}

// Slices but the last take the same, whatever mask and lengths make of tiles.
void ExpectBalanced(const std::vector<Slice>& slices,
                    const std::vector<double>& pairs) {
  ASSERT_GE(slices.size(), 4);
  ASSERT_EQ(slices.back().end, static_cast<int64_t>(pairs.size()));
  std::vector<double> taken;
  int64_t first = 0;
  for (const Slice& slice : slices) {
    double sum = 0;
    for (; first < slice.end; ++first) sum += pairs[first];
    taken.push_back(sum);
  }
  taken.pop_back();
  const auto [least, most] = std::minmax_element(taken.begin(), taken.end());
  EXPECT_LE(*most, 1.3 * *least);
}

TEST_F(SlicesTest, SlicesTakeTheSameUnderAMask) {
  for (const Shape& shape :
       {Shape{.batch = 3, .len = 16384, .heads = 7, .causal = true},
        Shape{.batch = 1, .len = 40000, .heads = 8, .causal = true, .group = 8},
        Shape{.batch = 2, .len = 16384, .heads = 8, .left = 3000}}) {
    const Sized sized(shape);
    const Tiles tiles = RowTiles(sized.p, kStays);
    Launch launch(kStays);
    Add(launch, sized.p, tiles);
    launch.Place(blob_);
    ExpectBalanced(Cut(launch, MostMicros(launch) / 20),
                   RowPairs(sized.p, tiles, kStays.rows));
  }
}

TEST_F(SlicesTest, SlicesTakeTheSameWhateverLengthsSequencesHave) {
  Sized sized({.batch = 6, .len = 16000, .heads = 4});
  const std::vector<int64_t> lens = {100, 16000, 3, 9000, 0, 200};
  sized.p.q_lens = lens;
  sized.segment.lens = lens;
  const Tiles tiles = RowTiles(sized.p, kStays);
  Launch launch(kStays);
  Add(launch, sized.p, tiles);
  launch.Place(blob_);
  ExpectBalanced(Cut(launch, MostMicros(launch) / 50),
                 RowPairs(sized.p, tiles, kStays.rows));
}

// First columns are seen by most rows; with turns they come last, or in every
// other head first, perhaps chunk by chunk of two heads.
TEST_F(SlicesTest, BackwardsSlicesTakeTheSameUnderAMask) {
  const Sized sized({.batch = 1, .len = 32768, .heads = 4, .causal = true});
  struct Order {
    bool last_first, alternates;
    int64_t first_kv_head, chunk_blocks;
  };
  for (const Order& order :
       {Order{false, false, 0, 0}, Order{true, false, 0, 0},
        Order{true, true, 0, 0}, Order{true, true, 1, 0},
        Order{true, true, 0, 100}, Order{true, true, 1, 100}}) {
    Tiles tiles = ColumnTiles(sized.p, kStays);
    tiles.last_first = order.last_first;
    tiles.alternates = order.alternates;
    tiles.first_kv_head = order.first_kv_head;
    tiles.whole_kv_heads = 8;
    tiles.chunk_blocks = order.chunk_blocks;
    tiles.heads_together = order.chunk_blocks > 0 ? 2 : 1;
    Launch launch(kStays);
    Add(launch, sized.p, tiles);
    launch.Place(blob_);
    std::vector<double> pairs;
    const ColumnOrder places = {4, static_cast<uint32_t>(tiles.row_blocks),
                                static_cast<uint32_t>(tiles.heads_together),
                                static_cast<uint32_t>(tiles.chunk_blocks)};
    for (uint32_t index = 0; index < tiles.count(); ++index) {
      const auto [head, n] = PlaceOf(places, index);
      const bool goes_up = order.alternates && (head + order.first_kv_head) % 2;
      const int64_t block =
          order.last_first && !goes_up ? tiles.row_blocks - 1 - n : n;
      pairs.push_back(static_cast<double>(32768 - block * kStays.cols));
    }
    ExpectBalanced(Cut(launch, MostMicros(launch) / 20), pairs);
  }
}

// Its blocks count what they have left for one another in counters, which are
// 0 again only after all of them.
TEST_F(SlicesTest, ASequenceThatIsDecodedInPartsIsNotCut) {
  Sized sized({.batch = 9, .len = 20000, .heads = 8, .group = 4});
  sized.p.q_len = 3;
  const Tiles tiles = sm80::DecodeTiles(sized.p);
  ASSERT_GT(tiles.parts, 1);
  Launch launch(kDecodes);
  Add(launch, sized.p, tiles);
  launch.Place(blob_);
  const int64_t of_sequence = tiles.count() / 9;
  const std::vector<int64_t> counts = Counts(Cut(launch, 0.001));
  EXPECT_GE(counts.size(), 3);
  for (int64_t count : counts) EXPECT_EQ(count % of_sequence, 0);
}

}  // namespace
}  // namespace attnd::cuda
