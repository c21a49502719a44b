// What of the baselines is decided on the host. Needs no GPU.

#include "kernels/cuda/baselines/naive/product.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/baselines/flash_attention_1/flash_attention_1.h"
#include "kernels/cuda/baselines/naive/cublas.h"
#include "kernels/cuda/baselines/naive/naive.h"
#include "kernels/cuda/baselines/naive/naive_backward.h"

namespace attnd::cuda {
namespace {

// Where all matrices of a product lie, in any order.
std::vector<std::tuple<int64_t, int64_t, int64_t>> Places(const Product& p) {
  std::vector<std::tuple<int64_t, int64_t, int64_t>> places;
  const auto& r = p.repeats;
  for (int64_t i = 0; i < r[0].count; ++i)
    for (int64_t j = 0; j < r[1].count; ++j)
      for (int64_t k = 0; k < r[2].count; ++k)
        places.emplace_back(i * r[0].a + j * r[1].a + k * r[2].a,
                            i * r[0].b + j * r[1].b + k * r[2].b,
                            i * r[0].c + j * r[1].c + k * r[2].c);
  std::sort(places.begin(), places.end());
  return places;
}

int64_t Calls(const Product& p) {
  return p.repeats[0].count * p.repeats[1].count;
}

TEST(FoldTest, KeepsEveryMatrix) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (int n = 0; n < 1000; ++n) {
    Product product;
    for (Repeat& r : product.repeats)
      r = {.count = 1 + draw(3), .a = draw(4), .b = draw(4), .c = draw(4)};
    const Product folded = Fold(product);
    EXPECT_EQ(Places(folded), Places(product));
    EXPECT_GE(folded.repeats[2].count, folded.repeats[1].count);
    EXPECT_GE(folded.repeats[2].count, folded.repeats[0].count);
  }
}

TEST(FoldTest, MakesOneRunOfContiguousHeads) {
  Product product;
  product.repeats = {Repeat{4, 800, 8000, 80}, Repeat{8, 100, 1000, 10},
                     Repeat{1, 100, 0, 10}};
  const Product folded = Fold(product);
  EXPECT_EQ(Calls(folded), 1);
  EXPECT_EQ(folded.repeats[2].count, 32);
}

// Heads side by side within a token: no one stride reaches all sequences.
TEST(FoldTest, CallsOnceForEachOfFewSequences) {
  Product product;
  product.repeats = {Repeat{4, 5000, 5000, 80}, Repeat{8, 64, 64, 10},
                     Repeat{1, 64, 0, 10}};
  EXPECT_EQ(Calls(Fold(product)), 4);
}

TEST(FoldTest, RepeatsOverTheHeadsThatAreMore) {
  Product product;  // two K/V heads, each for sixteen q heads
  product.repeats = {Repeat{}, Repeat{2, 1600, 7, 160}, Repeat{16, 100, 0, 10}};
  EXPECT_EQ(Calls(Fold(product)), 2);
  EXPECT_EQ(Fold(product).repeats[2].b, 0);
}

TEST(CublasTest, TakesRowsThatDoNotOverlap) {
  Product product;
  product.m = product.n = product.k = 8;
  product.lda = product.ldb = product.ldc = 8;
  EXPECT_TRUE(Cublas::Takes(product));
  product.ldb = 4;
  EXPECT_FALSE(Cublas::Takes(product));
}

TEST(CublasTest, KnowsWhichSideOfATransposedMatrixIsARow) {
  Product product;
  product.m = 8;
  product.n = product.k = 4;
  product.lda = 4;
  product.ldb = product.ldc = 8;
  EXPECT_TRUE(Cublas::Takes(product));
  product.a_transposed = true;
  EXPECT_FALSE(Cublas::Takes(product));
  product.lda = 8;
  EXPECT_TRUE(Cublas::Takes(product));
}

TEST(CublasTest, TakesOnlyWhatAnIntCounts) {
  Product product;
  product.m = product.n = product.k = 8;
  product.lda = product.ldb = 8;
  product.ldc = int64_t{1} << 31;
  EXPECT_FALSE(Cublas::Takes(product));
}

// The library may multiply A by the scale: 3e-18 of dX by 8e-30 is nothing
// then, though times 5e14 of K it is a gradient.
TEST(CublasTest, TakesNoScaleThatIsFarFromOne) {
  Product product;
  product.m = product.n = product.k = 8;
  product.lda = product.ldb = product.ldc = 8;
  for (float scale : {1.0f, -1.0f, 0.0625f, 1024.0f}) {
    product.scale = scale;
    EXPECT_TRUE(Cublas::Takes(product)) << scale;
  }
  for (float scale : {0.0f, 8e-30f, -8e-30f, 1e30f, -1e30f}) {
    product.scale = scale;
    EXPECT_FALSE(Cublas::Takes(product)) << scale;
  }
}

Problem Square(const KvSegment& segment, int64_t len) {
  Problem p;
  p.batch = 2;
  p.q_len = len;
  p.q_heads = p.kv_heads = 4;
  p.head_dim = p.value_dim = 64;
  p.q.dtype = DType::kBF16;
  p.kv = {&segment, 1};
  return p;
}

TEST(BaselineScratchTest, NaiveHoldsSAndP) {
  KvSegment segment;
  segment.len = 4096;
  const int64_t elements = int64_t{2} * 4 * 4096 * 4096;
  const int64_t bytes = NaiveScratchBytes(Square(segment, 4096));
  EXPECT_GE(bytes, elements * 6);
  EXPECT_LE(bytes, elements * 6 * 1.01);
}

TEST(BaselineScratchTest, NaiveSaturates) {
  KvSegment segment;
  segment.len = int64_t{1} << 40;
  EXPECT_EQ(NaiveScratchBytes(Square(segment, segment.len)),
            std::numeric_limits<int64_t>::max());
}

int64_t BackwardBytes(DType dtype, NaiveOrder order) {
  KvSegment segment;
  segment.len = 4096;
  Problem p = Square(segment, 4096);
  p.q.dtype = dtype;
  return NaiveBackwardScratchBytes(p, order);
}

TEST(BaselineScratchTest, NaiveBackwardHoldsWhatIsLiveAtOnce) {
  const double element = double{2} * 4 * 4096 * 4096;
  const auto expect = [&](DType dtype, NaiveOrder order, double bytes) {
    EXPECT_GE(BackwardBytes(dtype, order), element * bytes);
    EXPECT_LE(BackwardBytes(dtype, order), element * bytes * 1.01);
  };
  expect(DType::kF32, NaiveOrder::kMathematical, 2 * 4);
  expect(DType::kBF16, NaiveOrder::kMathematical, 2 * 4 + 2);
  expect(DType::kF32, NaiveOrder::kAutograd, 6 * 4);
  expect(DType::kBF16, NaiveOrder::kAutograd, 6 * 4);
}

TEST(BaselineScratchTest, NaiveBackwardSaturates) {
  KvSegment segment;
  segment.len = int64_t{1} << 40;
  EXPECT_EQ(NaiveBackwardScratchBytes(Square(segment, segment.len),
                                      NaiveOrder::kAutograd),
            std::numeric_limits<int64_t>::max());
}

TEST(BaselineScratchTest, FlashAttention1sIsThatOfRows) {
  KvSegment shorter, longer;
  shorter.len = 1;
  longer.len = 1 << 20;
  EXPECT_EQ(FlashAttention1ScratchBytes(Square(shorter, 100)),
            FlashAttention1ScratchBytes(Square(longer, 100)));
}

}  // namespace
}  // namespace attnd::cuda
