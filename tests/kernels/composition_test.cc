// Attention over shards of K/V is attention: forward merges, and backward over
// each shard with the global LSE adds up. All in the oracle's arithmetic or
// judged against it, for every algorithm.

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/reference/merge.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/chained_backward.h"
#include "tests/kernels/chained_forward.h"
#include "tests/kernels/q_starts.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::OwnedRows;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::QStarts;
using testing::RandomProblem;

constexpr Algorithm kAlgorithms[] = {
    Algorithm::kNaive, Algorithm::kOnlineSoftmax, Algorithm::kFlashAttention1,
    Algorithm::kFlashAttention2};

// Without bias, whose columns belong to all segments at once.
ProblemOptions Shardable(DType dtype) {
  ProblemOptions options;
  options.dtypes = {dtype};
  options.max_segments = 8;
  options.max_kv_len = 24;
  options.max_dim = 64;
  options.bias = false;
  return options;
}

// The problem over its n-th segment alone.
Problem Shard(const Problem& p, absl::Span<const KvSegment> kv, size_t n,
              absl::Span<const int64_t> starts) {
  Problem shard = p;
  shard.kv = kv.subspan(n, 1);
  shard.q_starts = starts;
  return shard;
}

struct Partials {
  std::vector<OwnedTensor> o;
  std::vector<OwnedRows> lse;
  std::vector<reference::Partial> views;
};

Partials RunShards(const Problem& p, Algorithm algorithm) {
  const std::vector<int64_t> starts = QStarts(p);
  Partials partials;
  const size_t count = p.kv.size();
  for (size_t n = 0; n < count; ++n) {
    partials.o.emplace_back(DType::kF32, p.batch, p.q_len, p.q_heads,
                            p.value_dim);
    partials.lse.emplace_back(p.batch, p.q_heads, p.q_len);
  }
  for (size_t n = 0; n < count; ++n) {
    ForwardArgs args;
    args.problem = Shard(p, p.kv, n, starts);
    args.o = partials.o[n].view();
    args.lse = partials.lse[n].view();
    EXPECT_TRUE(reference::Forward(args, algorithm).ok());
    partials.views.push_back({std::as_const(partials.o[n]).view(),
                              std::as_const(partials.lse[n]).view()});
  }
  return partials;
}

TEST(CompositionTest, MergedShardsAreTheWhole) {
  for (Algorithm algorithm : kAlgorithms) {
    for (int seed = 0; seed < 60; ++seed) {
      const RandomProblem problem(seed, Shardable(DType::kF32));
      ASSERT_TRUE(testing::CheckForward(problem, [&](const ForwardArgs& args) {
        const Problem& p = args.problem;
        const Partials partials = RunShards(p, algorithm);
        reference::Merge({p.batch, p.q_len, p.q_heads, p.value_dim},
                         partials.views, args.o, args.lse);
        return absl::OkStatus();
      }));
    }
  }
}

TEST(CompositionTest, EachShardMergedWithThoseBeforeItIsTheWhole) {
  for (Algorithm algorithm : kAlgorithms) {
    for (int seed = 0; seed < 120; ++seed) {
      const RandomProblem problem(seed, testing::ForwardOnly());
      ASSERT_TRUE(testing::CheckForward(problem, [&](const ForwardArgs& args) {
        return testing::ForwardInLinks(
            args, 5, seed, [&](const ForwardArgs& link) {
              return reference::Forward(link, algorithm);
            });
      })) << problem.Describe();
    }
  }
}

// Backward over one shard after another, dQ summed in float.
absl::Status BackwardByShards(const BackwardArgs& args, Algorithm algorithm) {
  const Problem& p = args.problem;
  const std::vector<int64_t> starts = QStarts(p);
  OwnedTensor sum(DType::kF32, p.batch, p.q_len, p.q_heads, p.head_dim);
  OwnedTensor part(DType::kF32, p.batch, p.q_len, p.q_heads, p.head_dim);
  const auto for_each = [&](auto fn) {
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t i = 0; i < p.q_len; ++i)
        for (int64_t h = 0; h < p.q_heads; ++h)
          for (int64_t d = 0; d < p.head_dim; ++d) fn(b, i, h, d);
  };
  for_each([&](auto... at) { sum.Set(at..., 0); });
  for (size_t n = 0; n < p.kv.size(); ++n) {
    BackwardArgs shard = args;
    shard.problem = Shard(p, p.kv, n, starts);
    shard.dq = part.view();
    if (absl::Status s = reference::Backward(shard, algorithm); !s.ok())
      return s;
    for_each(
        [&](auto... at) { sum.Set(at..., sum.Get(at...) + part.Get(at...)); });
  }
  if (!args.dq) return absl::OkStatus();
  for_each([&](int64_t b, int64_t i, int64_t h, int64_t d) {
    static_cast<float*>(
        args.dq.data)[b * args.dq.batch_stride + i * args.dq.token_stride +
                      h * args.dq.head_stride + d] = sum.Get(b, i, h, d);
  });
  return absl::OkStatus();
}

TEST(CompositionTest, GradientsOfShardsAddUpToTheWholes) {
  for (Algorithm algorithm : kAlgorithms) {
    for (int seed = 0; seed < 60; ++seed) {
      const RandomProblem problem(seed, Shardable(DType::kF32));
      ASSERT_TRUE(
          testing::CheckBackward(problem, [&](const BackwardArgs& args) {
            return BackwardByShards(args, algorithm);
          }));
    }
  }
}

TEST(CompositionTest, GradientsPassedOnFromShardToShardAreTheWholes) {
  for (Algorithm algorithm : kAlgorithms) {
    for (int seed = 0; seed < 60; ++seed) {
      const RandomProblem problem(seed);
      const bool in_place = seed % 2 == 1;
      // A sum of several terms is rounded more often.
      ASSERT_TRUE(testing::CheckBackward(
          problem,
          [&](const BackwardArgs& args) {
            return testing::BackwardInLinks(
                args, 4, seed, in_place, [&](const BackwardArgs& link) {
                  return reference::Backward(link, algorithm);
                });
          },
          testing::Slack::kApproximations))
          << problem.Describe();
    }
  }
}

// One row of two partials.
struct MergedRow {
  double o, lse;
};
MergedRow MergeRow(std::vector<std::pair<double, double>> o_and_lse) {
  std::vector<OwnedTensor> o;
  std::vector<OwnedRows> lse;
  std::vector<reference::Partial> partials;
  for (const auto& [o_value, lse_value] : o_and_lse) {
    o.emplace_back(DType::kF32, 1, 1, 1, 1).Set(0, 0, 0, 0, o_value);
    lse.emplace_back(1, 1, 1).Set(0, 0, 0, lse_value);
  }
  for (size_t n = 0; n < o.size(); ++n)
    partials.push_back(
        {std::as_const(o[n]).view(), std::as_const(lse[n]).view()});
  OwnedTensor merged_o(DType::kF32, 1, 1, 1, 1);
  OwnedRows merged_lse(1, 1, 1);
  reference::Merge({1, 1, 1, 1}, partials, merged_o.view(), merged_lse.view());
  return {merged_o.Get(0, 0, 0, 0), merged_lse.Get(0, 0, 0)};
}

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(MergeTest, WeighsByExpOfLse) {
  const MergedRow row = MergeRow({{1, std::log(1)}, {4, std::log(2)}});
  EXPECT_FLOAT_EQ(row.o, 3);
  EXPECT_FLOAT_EQ(row.lse, std::log(3));
}

TEST(MergeTest, OfEmptyPartialsIsEmpty) {
  for (const MergedRow& row :
       {MergeRow({}), MergeRow({{0, -kInf}, {0, -kInf}})}) {
    EXPECT_EQ(row.o, 0);
    EXPECT_EQ(row.lse, -kInf);
  }
}

TEST(MergeTest, IgnoresWhatAnEmptyPartialHolds) {
  const MergedRow row = MergeRow({{NAN, -kInf}, {2, 5}, {kInf, -kInf}});
  EXPECT_EQ(row.o, 2);
  EXPECT_EQ(row.lse, 5);
}

TEST(MergeTest, HoldsWhereExpWouldOverflow) {
  const MergedRow high = MergeRow({{1, 1e30}, {3, 1e30}});
  EXPECT_EQ(high.o, 2);
  EXPECT_EQ(high.lse, static_cast<float>(1e30));
  const MergedRow low = MergeRow({{1, -1e30}, {3, -1e30}, {7, -2e30}});
  EXPECT_EQ(low.o, 2);
  EXPECT_EQ(low.lse, static_cast<float>(-1e30));
}

TEST(MergeTest, PassesNanOn) {
  const MergedRow row = MergeRow({{1, 0}, {2, NAN}});
  EXPECT_TRUE(std::isnan(row.o));
  EXPECT_TRUE(std::isnan(row.lse));
}

}  // namespace
}  // namespace attnd
