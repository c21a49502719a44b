// Backward over shards of K/V with the global LSE and delta adds up to backward
// over all of them, on a GPU.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"
#include "tests/kernels/q_starts.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::CheckBackward;
using testing::DeviceRunner;
using testing::DeviceTest;
using testing::GradientProblem;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::QStarts;
using testing::RandomProblem;
using testing::Slack;

// Each segment as a problem of its own that gives its part of dQ in f32.
struct Shards {
  explicit Shards(const BackwardArgs& whole)
      : starts(QStarts(whole.problem)), dq(whole.problem.kv.size()) {
    const Problem& p = whole.problem;
    for (size_t n = 0; n < dq.size(); ++n) {
      dq[n] = OwnedTensor(DType::kF32, p.batch, p.q_len, p.q_heads, p.head_dim);
      BackwardArgs& shard = problems.emplace_back(whole);
      shard.problem.kv = p.kv.subspan(n, 1);
      shard.problem.q_starts = starts;
      shard.dq = dq[n].view();
    }
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  double Sum(int64_t b, int64_t i, int64_t h, int64_t d) const {
    float sum = 0;
    for (const OwnedTensor& part : dq) {
      sum += static_cast<float>(part.Get(b, i, h, d));
    }
    return sum;
  }

  std::vector<int64_t> starts;
  std::vector<OwnedTensor> dq;
  std::vector<BackwardArgs> problems;
};

// Runs the shards, one call each or all as one group, and writes the sum of
// their dQ where the whole's belongs. Theirs of K and V are the whole's.
absl::Status RunShards(DeviceRunner& device, const BackwardArgs& whole,
                       const GroupOptions& options, bool as_group) {
  const Shards shards(whole);
  const auto all = absl::MakeConstSpan(shards.problems);
  const size_t step = as_group ? std::max<size_t>(all.size(), 1) : 1;
  for (size_t n = 0; n < all.size(); n += step) {
    const auto counts = device.Backward(all.subspan(n, step), options);
    if (!counts.ok()) return counts.status();
  }
  const Problem& p = whole.problem;
  const TensorView& dq = whole.dq;
  for (int64_t b = 0; b < p.batch && dq; ++b) {
    for (int64_t i = 0; i < p.q_len; ++i) {
      for (int64_t h = 0; h < p.q_heads; ++h) {
        const int64_t row =
            b * dq.batch_stride + i * dq.token_stride + h * dq.head_stride;
        for (int64_t d = 0; d < p.head_dim; ++d) {
          StoreElement(dq.data, dq.dtype, row + d, shards.Sum(b, i, h, d));
        }
      }
    }
  }
  return absl::OkStatus();
}

class CudaBackwardCompositionTest
    : public DeviceTest,
      public ::testing::WithParamInterface<DType> {};

// Without bias, whose columns belong to all segments at once.
TEST_P(CudaBackwardCompositionTest, RandomShardsAddUpToTheWhole) {
  ProblemOptions options;
  options.dtypes = {GetParam()};
  options.max_segments = 8;
  options.max_q_len = 150;
  options.max_kv_len = 100;
  options.max_dim = 128;
  options.bias = false;
  for (int seed = 0; seed < 80; ++seed) {
    const RandomProblem problem(seed, options);
    const auto run = [&](const BackwardArgs& args) {
      return RunShards(device(), args, {.deterministic = seed % 2 == 1},
                       seed % 4 < 2);
    };
    ASSERT_TRUE(CheckBackward(problem, run, Slack::kApproximations));
  }
}

// One sequence, cut where a ring of so many devices would cut it.
TEST_P(CudaBackwardCompositionTest, OneToEightEqualShardsAddUpToTheWhole) {
  constexpr int64_t kKvLen = 330;
  for (int64_t dim : {64, 128}) {
    for (const Mask& mask :
         {Mask{}, Mask{.causal = true}, Mask{.causal = true, .left = 120}}) {
      GradientProblem problem(5, {.dtype = GetParam(),
                                  .q_len = 200,
                                  .kv_len = kKvLen,
                                  .q_heads = 2,
                                  .dim = dim,
                                  .mask = mask});
      problem.SetOutputs(DType::kF32, DType::kF32, DType::kF32);
      problem.Solve();
      for (int64_t shards = 1; shards <= 8; ++shards) {
        SCOPED_TRACE(absl::StrCat("dim ", dim, " causal ", mask.causal,
                                  " left ", mask.left, " shards ", shards));
        std::vector<KvSegment> segments;
        for (int64_t n = 0; n < shards; ++n) {
          const int64_t first = n * kKvLen / shards;
          segments.push_back(testing::Cut(problem.segment(), first,
                                          (n + 1) * kKvLen / shards - first));
        }
        BackwardArgs cut = problem.args;
        cut.problem.kv = segments;
        problem.PoisonOutputs();
        const absl::Status status = RunShards(
            device(), cut, {.deterministic = shards % 2 == 1}, shards % 3 == 0);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_TRUE(problem.IsAccurate());
      }
    }
  }
}

std::string TypeName(const ::testing::TestParamInfo<DType>& info) {
  return info.param == DType::kF32   ? "F32"
         : info.param == DType::kF16 ? "F16"
                                     : "Bf16";
}

INSTANTIATE_TEST_SUITE_P(Types, CudaBackwardCompositionTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         TypeName);

}  // namespace
}  // namespace attnd
