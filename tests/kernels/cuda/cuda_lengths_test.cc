// Lengths at the borders of what kernels cut problems into, on a GPU.

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/sm80/config.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using testing::CheckResults;
using testing::DenseProblem;
using testing::DeviceTest;
using testing::OwnedTensor;
using testing::Slack;

constexpr double kInf = std::numeric_limits<double>::infinity();

class CudaLengthsTest : public DeviceTest {
 protected:
  void ExpectAccurate(DenseProblem& problem) {
    problem.o.Poison();
    problem.lse.Poison();
    const auto counts = device().Forward({&problem.args, 1});
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_TRUE(CheckResults(problem.args.problem, problem.o.dtype(),
                             problem.o.Values(), problem.lse.Values(),
                             Slack::kApproximations));
  }
};

// NaN from each sequence's own length on.
void PoisonPadding(OwnedTensor& t, const std::vector<int64_t>& lens) {
  for (int64_t b = 0; b < t.batch(); ++b) {
    for (int64_t i = lens[b]; i < t.tokens(); ++i) {
      for (int64_t h = 0; h < t.heads(); ++h) {
        for (int64_t d = 0; d < t.dim(); ++d) {
          t.Set(b, i, h, d, std::nan(""));
        }
      }
    }
  }
}

// Sequences of each of these lengths with each of those, in one batch whose
// longest are shorter than the padding.
struct MixedBatch {
  static constexpr int64_t kQLens[] = {0, 1, 16, 17, 200};
  static constexpr int64_t kKvLens[] = {0, 1, 2047, 2048, 2049, 4100};
  static constexpr int64_t kQPadded = 210, kKvPadded = 4200;

  explicit MixedBatch(DType dtype)
      : dense(1, {.dtype = dtype,
                  .batch = std::size(kQLens) * std::size(kKvLens),
                  .q_len = kQPadded,
                  .kv_len = kKvPadded,
                  .q_heads = 2,
                  .dim = 32}),
        segment(dense.args.problem.kv.front()) {
    for (int64_t q_len : kQLens) {
      for (int64_t kv_len : kKvLens) {
        q_lens.push_back(q_len);
        kv_lens.push_back(kv_len);
      }
    }
    PoisonPadding(dense.q, q_lens);
    PoisonPadding(dense.k, kv_lens);
    PoisonPadding(dense.v, kv_lens);
    segment.lens = kv_lens;
    dense.args.problem.q_lens = q_lens;
    dense.args.problem.kv = {&segment, 1};
  }
  MixedBatch(const MixedBatch&) = delete;
  MixedBatch& operator=(const MixedBatch&) = delete;

  DenseProblem dense;
  KvSegment segment;
  std::vector<int64_t> q_lens, kv_lens;
};

// All rows past a sequence's length, whichever kernel had it.
void ExpectPaddingIsZero(const MixedBatch& batch) {
  const DenseProblem& dense = batch.dense;
  for (int64_t b = 0; b < dense.o.batch(); ++b) {
    for (int64_t i = batch.q_lens[b]; i < dense.o.tokens(); ++i) {
      for (int64_t h = 0; h < dense.o.heads(); ++h) {
        ASSERT_EQ(dense.lse.Get(b, h, i), -kInf)
            << "row " << i << " of sequence " << b;
        for (int64_t d = 0; d < dense.o.dim(); ++d) {
          ASSERT_EQ(dense.o.Get(b, i, h, d), 0)
              << "row " << i << " of sequence " << b;
        }
      }
    }
  }
}

class CudaMixedBatchTest : public CudaLengthsTest,
                           public ::testing::WithParamInterface<DType> {};

TEST_P(CudaMixedBatchTest, LongAndShortSequencesShareAPaddedBatch) {
  MixedBatch batch(GetParam());
  for (const Mask& mask :
       {Mask{}, Mask{.causal = true}, Mask{.causal = true, .left = 2000}}) {
    SCOPED_TRACE(absl::StrCat("causal ", mask.causal, " left ", mask.left));
    batch.dense.args.problem.mask = mask;
    ExpectAccurate(batch.dense);
    ExpectPaddingIsZero(batch);
  }
}

std::string TypeName(const ::testing::TestParamInfo<DType>& info) {
  return info.param == DType::kF32   ? "F32"
         : info.param == DType::kF16 ? "F16"
                                     : "Bf16";
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMixedBatchTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         TypeName);

// Around the ends of parts, whose last may be of one column, and of sequences
// that are one part longer or shorter.
TEST_F(CudaLengthsTest, DecodesAroundTheBordersOfParts) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (int64_t parts : {1, 2, 3, 8}) {
      for (int64_t beside : {-1, 0, 1, 63, 64, 65}) {
        for (int64_t q_len : {1, 4}) {
          const int64_t kv_len = cuda::sm80::kPartColumns * parts + beside;
          SCOPED_TRACE(absl::StrCat("kv_len ", kv_len, " q_len ", q_len));
          DenseProblem problem(2, {.dtype = dtype,
                                   .q_len = q_len,
                                   .kv_len = kv_len,
                                   .q_heads = 6,
                                   .kv_heads = 2,
                                   .dim = 16});
          problem.args.problem.mask.causal = q_len > 1;
          ExpectAccurate(problem);
        }
      }
    }
  }
}

class CudaPartsTest : public CudaLengthsTest,
                      public ::testing::WithParamInterface<int64_t> {};

// Parts are merged so many at once, by dim, and then so many more.
TEST_P(CudaPartsTest, DecodesInManyParts) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (int64_t parts : {5, 22}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " parts ", parts));
      DenseProblem problem(
          4, {.dtype = dtype,
              .kv_len = cuda::sm80::kPartColumns * (parts - 1) + 1000,
              .q_heads = 2,
              .dim = GetParam()});
      ExpectAccurate(problem);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, CudaPartsTest,
                         ::testing::Values(64, 96, 128, 192, 256));

// No more parts than this many, however long: the parts grow.
TEST_F(CudaLengthsTest, DecodesSequencesOfManyLongParts) {
  constexpr int64_t kMostColumns =
      cuda::sm80::kMostParts * cuda::sm80::kPartColumns;
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (int64_t kv_len :
         {kMostColumns - 1, kMostColumns, kMostColumns + 1, int64_t{300000}}) {
      SCOPED_TRACE(
          absl::StrCat("dtype ", static_cast<int>(dtype), " kv_len ", kv_len));
      DenseProblem problem(
          3, {.dtype = dtype, .q_len = 2, .kv_len = kv_len, .dim = 16});
      ExpectAccurate(problem);
      const auto exact = reference::OracleForward(problem.args.problem);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(problem.lse.Get(0, 0, i), exact.lse[i], 1e-5);
        // About 0.002, as the mean of so many: P's roundings cancel.
        for (int64_t d = 0; d < 16; ++d) {
          EXPECT_NEAR(problem.o.Get(0, i, 0, d), exact.o[i * 16 + d], 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnd
