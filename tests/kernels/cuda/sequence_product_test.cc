// Which products the matrices of a problem are made and read by. Needs no GPU.

#include "kernels/cuda/baselines/naive/sequence_product.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"

namespace attnd::cuda {
namespace {

// Three sequences of two segments each, three q heads to a K/V head.
struct TwoSegments {
  TwoSegments() {
    segments[0].len = 5;
    segments[1].len = 7;
    problem.batch = 3;
    problem.q_len = 4;
    problem.q_heads = 6;
    problem.kv_heads = 2;
    problem.head_dim = problem.value_dim = 8;
    problem.q.dtype = DType::kF16;
    problem.kv = segments;
  }

  KvSegment segments[2];
  Problem problem;
};

TEST(ScoreBlocksTest, TakeAllSequencesTogetherIfTheirLengthsAreTheSame) {
  const TwoSegments two;
  const std::vector<ScoreBlock> blocks = ScoreBlocks(two.problem);
  ASSERT_EQ(blocks.size(), 2);
  for (int n = 0; n < 2; ++n) {
    EXPECT_EQ(blocks[n].sequences.first, 0);
    EXPECT_EQ(blocks[n].sequences.last, 3);
    EXPECT_EQ(blocks[n].segment, n);
    EXPECT_EQ(blocks[n].column, n == 0 ? 0 : 5);
    EXPECT_EQ(blocks[n].q_len, 4);
    EXPECT_EQ(blocks[n].kv_len, n == 0 ? 5 : 7);
    EXPECT_EQ(blocks[n].is_first, n == 0);
  }
}

TEST(ScoreBlocksTest, LeaveOutWhatHasNoRowOrColumn) {
  TwoSegments two;
  const int64_t q_lens[] = {4, 0, 3}, kv_lens[] = {0, 5, 2};
  two.problem.q_lens = q_lens;
  two.segments[0].lens = kv_lens;
  const std::vector<ScoreBlock> blocks = ScoreBlocks(two.problem);
  ASSERT_EQ(blocks.size(), 3);
  // The third sequence's part of the first segment, then both of the second.
  EXPECT_EQ(blocks[0].sequences.first, 2);
  EXPECT_EQ(blocks[0].kv_len, 2);
  EXPECT_TRUE(blocks[0].is_first);
  EXPECT_EQ(blocks[1].sequences.first, 0);
  EXPECT_TRUE(blocks[1].is_first);
  EXPECT_EQ(blocks[2].sequences.first, 2);
  EXPECT_EQ(blocks[2].q_len, 3);
  EXPECT_FALSE(blocks[2].is_first);
}

// P^T dO of the second segment.
Product OfKeys(const Problem& p, const ConstTensorView& queries,
               const void* scores, const TensorView& result) {
  const ScoreBlock block = ScoreBlocks(p)[1];
  const auto matrix = AsTensor(scores, p.dtype(), p.q_heads, p.q_len, 16);
  return SequenceProduct(p, block.sequences, block.kv_len, p.value_dim,
                         block.q_len)
      .TransposedA(FromColumn(matrix, block.column), Heads::kQ)
      .B(queries, Heads::kQ)
      .C(result, Heads::kKv)
      .product();
}

class SumOverHeadsTest : public ::testing::Test {
 protected:
  const TwoSegments two_;
  const Problem& p_ = two_.problem;
  int16_t scores_[3 * 6 * 4 * 16], queries_[3 * 6 * 4 * 8];
  float result_[3 * 2 * 7 * 8];
  const TensorView of_keys_ = AsTensor<void>(result_, DType::kF32, 2, 7, 8);
};

TEST_F(SumOverHeadsTest, IsOneProductOfHeadsThatLieOneAfterAnother) {
  const auto queries = AsTensor<const void>(queries_, DType::kF16, 6, 4, 8);
  const Product product = OfKeys(p_, queries, scores_, of_keys_);
  EXPECT_EQ(product.a, scores_ + 5);
  EXPECT_TRUE(product.a_transposed);
  EXPECT_TRUE(SumsAtOnce(p_, queries, HeadSums::kTogether));
  const std::vector<Product> sum = SumOverHeads(product, HeadSums::kTogether);
  ASSERT_EQ(sum.size(), 1);
  EXPECT_EQ(sum[0].m, 7);
  EXPECT_EQ(sum[0].n, 8);
  EXPECT_EQ(sum[0].k, 3 * 4);
  EXPECT_EQ(sum[0].repeated(), 3 * 2);
  EXPECT_FALSE(sum[0].accumulate);
  EXPECT_FALSE(SumsAtOnce(p_, queries, HeadSums::kApart));
  EXPECT_EQ(SumOverHeads(product, HeadSums::kApart).size(), 3);
}

TEST_F(SumOverHeadsTest, AddsUpHeadsThatLieWithinATokenOneByOne) {
  const ConstTensorView queries = {queries_, DType::kF16, 4 * 6 * 8, 6 * 8, 8};
  EXPECT_FALSE(SumsAtOnce(p_, queries, HeadSums::kTogether));
  const std::vector<Product> sum =
      SumOverHeads(OfKeys(p_, queries, scores_, of_keys_), HeadSums::kTogether);
  ASSERT_EQ(sum.size(), 3);
  for (int h = 0; h < 3; ++h) {
    EXPECT_EQ(sum[h].a, scores_ + 5 + h * 4 * 16);
    EXPECT_EQ(sum[h].b, queries_ + h * 8);
    EXPECT_EQ(sum[h].c, result_);
    EXPECT_EQ(sum[h].k, 4);
    EXPECT_EQ(sum[h].repeated(), 3 * 2);
    EXPECT_EQ(sum[h].accumulate, h > 0);
  }
}

TEST_F(SumOverHeadsTest, KeepsTheSumsOfF32Short) {
  TwoSegments two;
  two.problem.q.dtype = DType::kF32;
  const auto queries = AsTensor<const void>(queries_, DType::kF32, 6, 4, 8);
  EXPECT_FALSE(SumsAtOnce(two.problem, queries, HeadSums::kTogether));
  const Product product = OfKeys(two.problem, queries, scores_, of_keys_);
  EXPECT_EQ(SumOverHeads(product, HeadSums::kTogether).size(), 3);
}

TEST_F(SumOverHeadsTest, DoesNotReachPastASequencesRows) {
  TwoSegments two;
  const int64_t q_lens[] = {3, 4, 4};
  two.problem.q_lens = q_lens;
  const auto queries = AsTensor<const void>(queries_, DType::kF16, 6, 4, 8);
  EXPECT_FALSE(SumsAtOnce(two.problem, queries, HeadSums::kTogether));
  const ScoreBlock shorter = ScoreBlocks(two.problem)[0];
  ASSERT_EQ(shorter.q_len, 3);
  const Product product =
      SequenceProduct(two.problem, shorter.sequences, shorter.kv_len, 8,
                      shorter.q_len)
          .TransposedA(AsTensor<const void>(scores_, DType::kF16, 6, 4, 16),
                       Heads::kQ)
          .B(queries, Heads::kQ)
          .C(of_keys_, Heads::kKv)
          .product();
  EXPECT_EQ(SumOverHeads(product, HeadSums::kTogether).size(), 3);
}

}  // namespace
}  // namespace attnd::cuda
