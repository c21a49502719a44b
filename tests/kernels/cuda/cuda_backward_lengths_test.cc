// Lengths at the borders of what backward's kernels cut problems into, on a
// GPU. Past them everything is NaN, and gradients must be 0.

#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"

namespace attnd {
namespace {

using testing::DeviceTest;
using testing::GradientProblem;
using testing::OwnedTensor;

// NaN from each sequence's own length on.
void PoisonPadding(OwnedTensor& t, const std::vector<int64_t>& lens) {
  for (int64_t b = 0; b < t.batch(); ++b) {
    for (int64_t i = lens[b]; i < t.tokens(); ++i) {
      for (int64_t h = 0; h < t.heads(); ++h) {
        for (int64_t d = 0; d < t.dim(); ++d) t.Set(b, i, h, d, std::nan(""));
      }
    }
  }
}

// Sequences of each of these lengths with each of those, in one batch whose
// longest are shorter than the padding.
struct MixedBatch {
  static constexpr int64_t kQLens[] = {0, 1, 17, 63, 64, 65, 129};
  static constexpr int64_t kKvLens[] = {0, 1, 63, 64, 65, 127, 128, 129, 190};
  static constexpr int64_t kQPadded = 140, kKvPadded = 200;

  MixedBatch(DType dtype, int64_t dim, const Mask& mask)
      : dense(1, {.dtype = dtype,
                  .batch = std::size(kQLens) * std::size(kKvLens),
                  .q_len = kQPadded,
                  .kv_len = kKvPadded,
                  .q_heads = 2,
                  .dim = dim,
                  .mask = mask}) {
    for (int64_t q_len : kQLens) {
      for (int64_t kv_len : kKvLens) {
        q_lens.push_back(q_len);
        kv_lens.push_back(kv_len);
      }
    }
    PoisonPadding(dense.forward.q, q_lens);
    PoisonPadding(dense.d_o, q_lens);
    PoisonPadding(dense.forward.k, kv_lens);
    PoisonPadding(dense.forward.v, kv_lens);
    for (int64_t b = 0; b < dense.problem().batch; ++b) {
      for (int64_t h = 0; h < dense.problem().q_heads; ++h) {
        for (int64_t i = q_lens[b]; i < kQPadded; ++i) {
          dense.d_lse.Set(b, h, i, std::nan(""));
        }
      }
    }
    dense.segment().lens = kv_lens;
    dense.problem().q_lens = q_lens;
    dense.Solve();
  }

  GradientProblem dense;
  std::vector<int64_t> q_lens, kv_lens;
};

struct Kind {
  DType dtype;
  int64_t dim;
};
class CudaBackwardLengthsTest : public DeviceTest,
                                public ::testing::WithParamInterface<Kind> {
 protected:
  // O given, or delta; LSE used further, or not.
  void ExpectAccurate(const Mask& mask) {
    MixedBatch batch(GetParam().dtype, GetParam().dim, mask);
    GradientProblem& dense = batch.dense;
    for (bool deterministic : {false, true}) {
      dense.PoisonOutputs();
      const auto counts =
          device().Backward({&dense.args, 1}, {.deterministic = deterministic});
      ASSERT_TRUE(counts.ok()) << counts.status();
      ASSERT_TRUE(dense.IsAccurate()) << "deterministic " << deterministic;
      dense.args.o = {};
      dense.args.delta = std::as_const(dense.delta).view();
      dense.args.d_lse = std::as_const(dense.d_lse).view();
    }
  }
};

TEST_P(CudaBackwardLengthsTest, OfAllPairsInAPaddedBatch) {
  ExpectAccurate({});
}

TEST_P(CudaBackwardLengthsTest, OfAllPairsUnderACausalMask) {
  ExpectAccurate({.causal = true});
}

TEST_P(CudaBackwardLengthsTest, OfAllPairsUnderAWindow) {
  ExpectAccurate({.left = 70, .right = 30});
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {40, 128}) kinds.push_back({dtype, dim});
  }
  return kinds;
}

std::string Name(const ::testing::TestParamInfo<Kind>& info) {
  const DType dtype = info.param.dtype;
  return absl::StrCat(dtype == DType::kF32   ? "F32"
                      : dtype == DType::kF16 ? "F16"
                                             : "Bf16",
                      "Dim", info.param.dim);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaBackwardLengthsTest,
                         ::testing::ValuesIn(Kinds()), Name);

}  // namespace
}  // namespace attnd
