#include "proto/wire/chunk_grid.h"

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"

namespace attnd::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

std::string FieldOf(const absl::Status& status) {
  const auto violations = FieldViolations(status);
  return violations.size() == 1 ? violations[0].field : "";
}

TEST(ChunkGrid, CutsATensorIntoChunksOfWhichTheLastIsShorter) {
  const ChunkGrid grid(250, 100);
  EXPECT_EQ(grid.chunks(), 3);
  EXPECT_EQ(grid.Chunk(0), (ByteRange{0, 100}));
  EXPECT_EQ(grid.Chunk(1), (ByteRange{100, 100}));
  EXPECT_EQ(grid.Chunk(2), (ByteRange{200, 50}));
  EXPECT_EQ(ChunkGrid(200, 100).chunks(), 2);
  EXPECT_EQ(ChunkGrid(1, 100).Chunk(0), (ByteRange{0, 1}));
}

TEST(ChunkGrid, ATensorWithoutBytesHasNoChunks) {
  const ChunkGrid grid(0, 100);
  EXPECT_EQ(grid.chunks(), 0);
  EXPECT_EQ(grid.missing(), 0);
  EXPECT_THAT(grid.MissingRanges(), IsEmpty());
}

TEST(ChunkGrid, KnowsWhatIsMissing) {
  ChunkGrid grid(1050, 100);
  EXPECT_EQ(grid.missing(), 11);
  EXPECT_THAT(grid.MissingRanges(), ElementsAre(ByteRange{0, 1050}));
  EXPECT_TRUE(*grid.Claim(300, 100));
  EXPECT_TRUE(*grid.Claim(0, 100));
  EXPECT_TRUE(*grid.Claim(400, 100));
  EXPECT_TRUE(*grid.Claim(1000, 50));
  EXPECT_EQ(grid.missing(), 7);
  EXPECT_THAT(grid.MissingRanges(),
              ElementsAre(ByteRange{100, 200}, ByteRange{500, 500}));
  EXPECT_FALSE(*grid.Claim(300, 100));
  EXPECT_EQ(grid.missing(), 7);
}

TEST(ChunkGrid, RefusesWhatIsNotOnTheGrid) {
  ChunkGrid grid(250, 100);
  for (const int64_t offset :
       {int64_t{-100}, int64_t{-1}, int64_t{1}, int64_t{250}, int64_t{300},
        kLargest, std::numeric_limits<int64_t>::min()}) {
    const absl::Status status = grid.Claim(offset, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << offset;
    EXPECT_EQ(FieldOf(status), "chunk.offset") << offset;
  }
  for (const int64_t bytes : {0, 50, 99, 101, 200}) {
    const absl::Status status = grid.Claim(0, bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bytes;
    EXPECT_EQ(FieldOf(status), "chunk.data") << bytes;
  }
  EXPECT_EQ(FieldOf(grid.Claim(200, 100).status()), "chunk.data");
  EXPECT_EQ(grid.missing(), 3);
}

TEST(ChunkGrid, FindsTheChunksOfARange) {
  const ChunkGrid grid(250, 100);
  const auto whole = grid.Chunks({0, 250});
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->begin, 0);
  EXPECT_EQ(whole->end, 3);
  const auto last = grid.Chunks({200, 50});
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->begin, 2);
  EXPECT_EQ(last->end, 3);
  for (const ByteRange range : std::vector<ByteRange>{{0, 0},
                                                      {0, -100},
                                                      {0, 150},
                                                      {0, 300},
                                                      {100, kLargest},
                                                      {200, 100}}) {
    EXPECT_EQ(FieldOf(grid.Chunks(range).status()), "missing.ranges.bytes")
        << range.offset << " " << range.bytes;
  }
  for (const ByteRange range : std::vector<ByteRange>{
           {-100, 100}, {50, 50}, {300, 100}, {kLargest, 1}}) {
    EXPECT_EQ(FieldOf(grid.Chunks(range).status()), "missing.ranges.offset")
        << range.offset << " " << range.bytes;
  }
}

TEST(ChunkGrid, MissingRangesAreWhatChunksTakesApart) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t bytes = random() % 2000;
    ChunkGrid grid(bytes, 1 + random() % 100);
    std::vector<bool> claimed(grid.chunks());
    for (int64_t i = 0; i < grid.chunks(); ++i) {
      if (random() % 2 == 0) continue;
      const ByteRange chunk = grid.Chunk(i);
      EXPECT_TRUE(*grid.Claim(chunk.offset, chunk.bytes));
      claimed[i] = true;
    }
    for (const ByteRange& range : grid.MissingRanges()) {
      const auto span = grid.Chunks(range);
      ASSERT_TRUE(span.ok()) << span.status();
      for (int64_t i = span->begin; i < span->end; ++i) {
        EXPECT_FALSE(claimed[i]);
        claimed[i] = true;
      }
    }
    EXPECT_THAT(claimed, ::testing::Each(true));
  }
}

}  // namespace
}  // namespace attnd::wire
