// The same sequence gives the same bits, whatever runs beside it.

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/random_problem.h"

namespace attnd {
namespace {

using testing::ProblemOptions;
using testing::RandomProblem;

using Values = std::vector<std::vector<double>>;

// Several blocks of lanes and tiles.
ProblemOptions Options() {
  ProblemOptions options;
  options.max_batch = 3;
  options.max_q_len = 250;
  options.max_kv_len = 250;
  options.max_dim = 2;  // so that groups of equal dims are easily drawn
  return options;
}

class CpuInvarianceTest : public ::testing::Test {
 protected:
  struct Device {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Stream> stream;
  };

  static Device MakeDevice(int threads) {
    Device device;
    device.backend = CreateCpuBackend({.threads = threads}).value();
    device.stream = device.backend->NewStream().value();
    return device;
  }

  // Every output of each problem, all of them run as one group.
  static std::vector<Values> Forward(
      Stream& stream, const std::vector<const RandomProblem*>& problems) {
    std::vector<RandomProblem::ForwardOutputs> out;
    for (const RandomProblem* p : problems) {
      out.push_back(p->MakeForwardOutputs());
    }
    std::vector<ForwardArgs> group;
    for (size_t i = 0; i < problems.size(); ++i) {
      group.push_back(problems[i]->Forward(out[i]));
    }
    EXPECT_TRUE(stream.Forward(group, {}).ok());
    std::vector<Values> values;
    for (const auto& o : out) {
      values.push_back({});
      if (o.o) values.back().push_back(o.o.Values());
      if (o.lse) values.back().push_back(o.lse.Values());
    }
    return values;
  }

  static std::vector<Values> Backward(
      Stream& stream, const std::vector<const RandomProblem*>& problems) {
    std::vector<RandomProblem::BackwardOutputs> out;
    for (const RandomProblem* p : problems) {
      out.push_back(p->MakeBackwardOutputs());
    }
    std::vector<BackwardArgs> group;
    for (size_t i = 0; i < problems.size(); ++i) {
      group.push_back(problems[i]->Backward(out[i]));
    }
    EXPECT_TRUE(stream.Backward(group, {}).ok());
    std::vector<Values> values;
    for (const auto& o : out) {
      values.push_back({});
      if (o.dq) values.back().push_back(o.dq.Values());
      for (const auto* kv : {&o.dk, &o.dv}) {
        for (const auto& t : *kv) {
          if (t) values.back().push_back(t.Values());
        }
      }
    }
    return values;
  }
};

TEST_F(CpuInvarianceTest, AnyGroupAndAnyThreadCountGiveTheSameBits) {
  // Problems that may share a group: equal type and dims.
  std::vector<std::unique_ptr<RandomProblem>> owned;
  std::vector<const RandomProblem*> group;
  for (uint32_t seed = 0; group.size() < 40; ++seed) {
    auto problem = std::make_unique<RandomProblem>(seed, Options());
    const Problem& p = problem->problem();
    if (p.dtype() != DType::kF32 || p.head_dim != 2 || p.value_dim != 2) {
      continue;
    }
    group.push_back(problem.get());
    owned.push_back(std::move(problem));
  }

  const Device one = MakeDevice(1);
  std::vector<Values> forward, backward;
  for (const RandomProblem* p : group) {
    forward.push_back(Forward(*one.stream, {p})[0]);
    backward.push_back(Backward(*one.stream, {p})[0]);
  }
  for (int threads : {1, 2, 3, 7}) {
    const Device device = MakeDevice(threads);
    EXPECT_EQ(Forward(*device.stream, group), forward) << threads;
    EXPECT_EQ(Backward(*device.stream, group), backward) << threads;
    const std::vector<const RandomProblem*> reversed(group.rbegin(),
                                                     group.rend());
    std::vector<Values> got = Forward(*device.stream, reversed);
    EXPECT_EQ(std::vector<Values>(got.rbegin(), got.rend()), forward);
    for (size_t i = 0; i < group.size(); ++i) {
      ASSERT_EQ(Forward(*device.stream, {group[i]})[0], forward[i])
          << group[i]->Describe();
      ASSERT_EQ(Backward(*device.stream, {group[i]})[0], backward[i])
          << group[i]->Describe();
    }
  }
}

// Sequence b of `p` with nothing around it: its own lengths, no padding.
Problem Alone(const Problem& p, int64_t b, std::vector<KvSegment>* segments) {
  const auto only = [b](absl::Span<const int64_t> values) {
    return values.empty() ? values : values.subspan(b, 1);
  };
  const auto from = [b](ConstTensorView view) {
    view.data = static_cast<const std::byte*>(view.data) +
                SizeOf(view.dtype) * b * view.batch_stride;
    return view;
  };
  Problem alone = p;
  alone.batch = 1;
  alone.q_len = QLen(p, b);
  alone.q_lens = {};
  alone.q_starts = only(p.q_starts);
  alone.q = from(p.q);
  segments->assign(p.kv.begin(), p.kv.end());
  for (KvSegment& s : *segments) {
    s.len = KvLen(s, b);
    s.lens = {};
    s.positions.starts = only(s.positions.starts);
    s.k = from(s.k);
    s.v = from(s.v);
  }
  alone.kv = *segments;
  return alone;
}

TEST_F(CpuInvarianceTest, ASequenceAloneGivesTheBitsItGivesInABatch) {
  ProblemOptions options = Options();
  options.bias = false;  // its columns would move with the padding
  options.max_dim = 40;
  const Device device = MakeDevice(2);
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomProblem problem(seed, options);
    const Problem& p = problem.problem();
    auto out = problem.MakeForwardOutputs();
    const ForwardArgs args = problem.Forward(out);
    if (!args.lse) continue;
    ASSERT_TRUE(device.stream->Forward({&args, 1}, {}).ok());
    for (int64_t b = 0; b < p.batch; ++b) {
      std::vector<KvSegment> segments;
      ForwardArgs alone;
      alone.problem = Alone(p, b, &segments);
      const int64_t rows = alone.problem.q_len;
      std::vector<float> lse(p.q_heads * rows);
      std::vector<float> o(p.q_heads * rows * p.value_dim);
      alone.lse = {lse.data(), 0, rows};
      alone.o = {o.data(), DType::kF32, 0, p.q_heads * p.value_dim,
                 p.value_dim};
      ASSERT_TRUE(device.stream->Forward({&alone, 1}, {}).ok());
      for (int64_t h = 0; h < p.q_heads; ++h) {
        for (int64_t i = 0; i < rows; ++i) {
          ASSERT_EQ(out.lse.Get(b, h, i), lse[h * rows + i])
              << problem.Describe();
          if (!out.o || out.o.dtype() != DType::kF32) continue;
          for (int64_t d = 0; d < p.value_dim; ++d) {
            ASSERT_EQ(out.o.Get(b, i, h, d),
                      o[(i * p.q_heads + h) * p.value_dim + d])
                << problem.Describe();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnd
