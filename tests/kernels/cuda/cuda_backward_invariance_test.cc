// Deterministic gradients of a sequence have the same bits every time, whatever
// runs beside it.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/sequence_alone.h"

namespace attnd {
namespace {

using testing::Alone;
using testing::AloneLike;
using testing::DeviceRunner;
using testing::DeviceTest;
using testing::InvarianceShape;
using testing::InvarianceShapes;
using testing::IsSequence;
using testing::Only;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::ShapeName;

constexpr uint32_t kProblems = 12;  // random ones of each shape
constexpr GroupOptions kDeterministic = {.deterministic = true};

// The memory of every output, in the output's own type.
using Bits = std::vector<std::vector<uint8_t>>;
using Group = std::vector<const RandomProblem*>;

Bits BitsOf(const RandomProblem::BackwardOutputs& out) {
  Bits bits = {out.dq.bytes()};
  for (const OwnedTensor& t : out.dk) bits.push_back(t.bytes());
  for (const OwnedTensor& t : out.dv) bits.push_back(t.bytes());
  return bits;
}

// Each problem's outputs, all of them run as one group.
std::vector<Bits> Backward(DeviceRunner& device, const Group& problems) {
  std::vector<RandomProblem::BackwardOutputs> out;
  for (const RandomProblem* p : problems) {
    out.push_back(p->MakeBackwardOutputs());
  }
  std::vector<BackwardArgs> group;
  for (size_t i = 0; i < problems.size(); ++i) {
    group.push_back(problems[i]->Backward(out[i]));
  }
  const auto counts = device.Backward(group, kDeterministic);
  EXPECT_TRUE(counts.ok()) << counts.status();
  std::vector<Bits> bits;
  for (const auto& o : out) bits.push_back(BitsOf(o));
  return bits;
}

class CudaBackwardInvarianceTest
    : public DeviceTest,
      public ::testing::WithParamInterface<InvarianceShape> {
 protected:
  // Several tiles. Every second problem is one that Hopper's kernels may take,
  // the others are of any kind: they share groups.
  static ProblemOptions Options(uint32_t seed) {
    ProblemOptions options;
    options.dtypes = {GetParam().dtype};
    options.head_dim = GetParam().head_dim;
    options.value_dim = GetParam().value_dim;
    options.max_q_len = options.max_kv_len = 250;
    options.max_segments = options.max_group = 2;
    if (seed % 2 == 0) {
      options.gap_step = 8;
      options.bias = options.softcap = options.odd_scales = false;
    }
    return options;
  }

  static std::vector<std::unique_ptr<RandomProblem>> Problems() {
    std::vector<std::unique_ptr<RandomProblem>> problems;
    for (uint32_t seed = 0; seed < kProblems; ++seed) {
      problems.push_back(std::make_unique<RandomProblem>(seed, Options(seed)));
    }
    return problems;
  }

  void CheckAlone(const RandomProblem& problem, Algorithm algorithm);
};

TEST_P(CudaBackwardInvarianceTest, AnyGroupGivesTheSameBits) {
  const auto problems = Problems();
  std::vector<Bits> alone;
  for (const auto& p : problems) {
    alone.push_back(Backward(device(), Group{p.get()})[0]);
  }
  std::vector<size_t> order(problems.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    // Some of them, in any order; in the first round all.
    const size_t size =
        round == 0 ? order.size() : 2 + random() % (order.size() - 2);
    Group group;
    for (size_t i = 0; i < size; ++i) group.push_back(problems[order[i]].get());
    const std::vector<Bits> got = Backward(device(), group);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_TRUE(got[i] == alone[order[i]])
          << i << " of " << size << ": " << group[i]->Describe();
    }
    std::shuffle(order.begin(), order.end(), random);
  }
}

// More problems than one launch's parameters can hold.
TEST_P(CudaBackwardInvarianceTest, ALargeGroupGivesTheSameBits) {
  const auto problems = Problems();
  std::vector<Bits> alone;
  Group group;
  for (const auto& p : problems) {
    alone.push_back(Backward(device(), Group{p.get()})[0]);
  }
  for (int copy = 0; copy < 8; ++copy) {
    for (const auto& p : problems) group.push_back(p.get());
  }
  const std::vector<Bits> got = Backward(device(), group);
  for (size_t i = 0; i < group.size(); ++i) {
    ASSERT_TRUE(got[i] == alone[i % kProblems]) << group[i]->Describe();
  }
}

TEST_P(CudaBackwardInvarianceTest, GroupsInARowDoNotDisturbEachOther) {
  const auto problems = Problems();
  std::vector<Bits> alone;
  std::vector<RandomProblem::BackwardOutputs> out;
  for (const auto& p : problems) {
    alone.push_back(Backward(device(), Group{p.get()})[0]);
    out.push_back(p->MakeBackwardOutputs());
  }
  std::vector<std::vector<BackwardArgs>> groups(problems.size() / 2);
  for (size_t i = 0; i < problems.size(); ++i) {
    groups[i / 2].push_back(problems[i]->Backward(out[i]));
  }
  const auto counts = device().BackwardEach(
      groups,
      [&](absl::Span<const BackwardArgs> group, cuda::Workspace& workspace) {
        return cuda::EnqueueBackward(group, kDeterministic, device().gpu(),
                                     workspace);
      });
  ASSERT_TRUE(counts.ok()) << counts.status();
  for (size_t i = 0; i < problems.size(); ++i) {
    EXPECT_TRUE(BitsOf(out[i]) == alone[i]) << problems[i]->Describe();
  }
}

void CudaBackwardInvarianceTest::CheckAlone(const RandomProblem& problem,
                                            Algorithm algorithm) {
  const GroupOptions options = {.algorithm = algorithm, .deterministic = true};
  auto out = problem.MakeBackwardOutputs();
  const BackwardArgs args = problem.Backward(out);
  const auto counts = device().Backward({&args, 1}, options);
  ASSERT_TRUE(counts.ok()) << counts.status();
  for (int64_t b = 0; b < args.problem.batch; ++b) {
    std::vector<KvSegment> segments;
    BackwardArgs alone = args;
    alone.problem = Alone(args.problem, b, &segments);
    alone.d_o = Only(args.d_o, b);
    alone.o = Only(args.o, b);
    alone.lse = Only(args.lse, b);
    alone.delta = Only(args.delta, b);
    alone.d_lse = Only(args.d_lse, b);
    OwnedTensor dq = AloneLike(out.dq, alone.problem.q_len);
    alone.dq = dq.view();
    std::vector<OwnedTensor> dk(segments.size()), dv(segments.size());
    for (size_t n = 0; n < segments.size(); ++n) {
      dk[n] = AloneLike(out.dk[n], segments[n].len);
      dv[n] = AloneLike(out.dv[n], segments[n].len);
      segments[n].dk = dk[n].view();
      segments[n].dv = dv[n].view();
    }
    const auto counts = device().Backward({&alone, 1}, options);
    ASSERT_TRUE(counts.ok()) << counts.status();
    ASSERT_TRUE(IsSequence(dq, out.dq, b)) << problem.Describe();
    for (size_t n = 0; n < segments.size(); ++n) {
      ASSERT_TRUE(IsSequence(dk[n], out.dk[n], b)) << problem.Describe();
      ASSERT_TRUE(IsSequence(dv[n], out.dv[n], b)) << problem.Describe();
    }
  }
}

TEST_P(CudaBackwardInvarianceTest, ASequenceAloneGivesTheBitsItGivesInABatch) {
  for (uint32_t seed = 100; seed < 100 + kProblems; ++seed) {
    ProblemOptions options = Options(seed);
    options.bias = false;  // its columns would move with the padding
    const RandomProblem problem(seed, options);
    for (Algorithm algorithm : {Algorithm::kAuto, Algorithm::kNaive}) {
      CheckAlone(problem, algorithm);
      if (HasFatalFailure()) return;
    }
  }
}

// Of each width that kernels are built for.
std::vector<InvarianceShape> Shapes() {
  std::vector<InvarianceShape> shapes = InvarianceShapes();
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    shapes.push_back({dtype, 96, 96});
    shapes.push_back({dtype, 192, 192});
    shapes.push_back({dtype, 192, 128});
  }
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaBackwardInvarianceTest,
                         ::testing::ValuesIn(Shapes()), ShapeName);

}  // namespace
}  // namespace attnd
