// The same sequence gives the same bits, whatever runs beside it.

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/kernels/sequence_alone.h"

namespace attnd {
namespace {

using testing::Alone;
using testing::AloneLike;
using testing::InvarianceShape;
using testing::InvarianceShapes;
using testing::IsSequence;
using testing::Only;
using testing::OwnedRows;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::ShapeName;

// How many random problems of each shape; sanitizers run tens of times slower.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kProblems = 2;
#else
constexpr uint32_t kProblems = 12;
#endif

// The memory of every output, in the output's own type.
using Bits = std::vector<std::vector<uint8_t>>;

struct Device {
  explicit Device(int threads)
      : backend(CreateCpuBackend({.threads = threads}).value()),
        stream(backend->NewStream().value()) {}
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
};

using Group = std::vector<const RandomProblem*>;

// Every output of each problem, all of them run as one group.
std::vector<Bits> Forward(const Device& device, const Group& problems) {
  std::vector<RandomProblem::ForwardOutputs> out;
  for (const RandomProblem* p : problems) {
    out.push_back(p->MakeForwardOutputs());
  }
  std::vector<ForwardArgs> group;
  for (size_t i = 0; i < problems.size(); ++i) {
    group.push_back(problems[i]->Forward(out[i]));
  }
  EXPECT_TRUE(testing::RunForward(*device.stream, group).ok());
  std::vector<Bits> bits;
  for (const auto& o : out) bits.push_back({o.o.bytes(), o.lse.bytes()});
  return bits;
}

std::vector<Bits> Backward(const Device& device, const Group& problems) {
  std::vector<RandomProblem::BackwardOutputs> out;
  for (const RandomProblem* p : problems) {
    out.push_back(p->MakeBackwardOutputs());
  }
  std::vector<BackwardArgs> group;
  for (size_t i = 0; i < problems.size(); ++i) {
    group.push_back(problems[i]->Backward(out[i]));
  }
  EXPECT_TRUE(testing::RunBackward(*device.stream, group).ok());
  std::vector<Bits> bits;
  for (const auto& o : out) {
    bits.push_back({o.dq.bytes()});
    for (const OwnedTensor& t : o.dk) bits.back().push_back(t.bytes());
    for (const OwnedTensor& t : o.dv) bits.back().push_back(t.bytes());
  }
  return bits;
}

class CpuInvarianceTest : public ::testing::TestWithParam<InvarianceShape> {
 protected:
  // Several blocks of lanes and tiles.
  static ProblemOptions Options() {
    ProblemOptions options;
    options.dtypes = {GetParam().dtype};
    options.head_dim = GetParam().head_dim;
    options.value_dim = GetParam().value_dim;
    options.max_q_len = options.max_kv_len = 250;
    options.max_segments = options.max_group = 2;
    return options;
  }
};

TEST_P(CpuInvarianceTest, AnyGroupAndAnyThreadCountGiveTheSameBits) {
  std::vector<std::unique_ptr<RandomProblem>> owned;
  Group group;
  for (uint32_t seed = 0; seed < kProblems; ++seed) {
    owned.push_back(std::make_unique<RandomProblem>(seed, Options()));
    group.push_back(owned.back().get());
  }
  const Group reversed(group.rbegin(), group.rend());

  const Device one(1);
  std::vector<Bits> forward, backward;
  for (const RandomProblem* p : group) {
    forward.push_back(Forward(one, {p})[0]);
    backward.push_back(Backward(one, {p})[0]);
  }
  for (int threads : {1, 2, 3, 7}) {
    SCOPED_TRACE(threads);
    const Device device(threads);
    EXPECT_TRUE(Forward(device, group) == forward);
    EXPECT_TRUE(Backward(device, group) == backward);
    std::vector<Bits> got = Forward(device, reversed);
    EXPECT_TRUE(std::vector<Bits>(got.rbegin(), got.rend()) == forward);
    got = Backward(device, reversed);
    EXPECT_TRUE(std::vector<Bits>(got.rbegin(), got.rend()) == backward);
    for (size_t i = 0; i < group.size(); ++i) {
      EXPECT_TRUE(Forward(device, {group[i]})[0] == forward[i])
          << group[i]->Describe();
      EXPECT_TRUE(Backward(device, {group[i]})[0] == backward[i])
          << group[i]->Describe();
    }
  }
}

void CheckForwardAlone(const Device& device, const RandomProblem& problem) {
  const Problem& p = problem.problem();
  auto out = problem.MakeForwardOutputs();
  const ForwardArgs args = problem.Forward(out);
  ASSERT_TRUE(testing::RunForward(*device.stream, {&args, 1}).ok());
  for (int64_t b = 0; b < p.batch; ++b) {
    std::vector<KvSegment> segments;
    ForwardArgs alone;
    alone.problem = Alone(p, b, &segments);
    const int64_t rows = alone.problem.q_len;
    OwnedTensor o = AloneLike(out.o, rows);
    OwnedRows lse(1, p.q_heads, rows);
    alone.o = o.view();
    alone.lse = lse.view();
    ASSERT_TRUE(testing::RunForward(*device.stream, {&alone, 1}).ok());
    ASSERT_TRUE(IsSequence(o, out.o, b)) << problem.Describe();
    ASSERT_TRUE(IsSequence(lse, out.lse, b, p.q_heads, rows))
        << problem.Describe();
  }
}

void CheckBackwardAlone(const Device& device, const RandomProblem& problem) {
  auto out = problem.MakeBackwardOutputs();
  const BackwardArgs args = problem.Backward(out);
  ASSERT_TRUE(testing::RunBackward(*device.stream, {&args, 1}).ok());
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
    ASSERT_TRUE(testing::RunBackward(*device.stream, {&alone, 1}).ok());
    ASSERT_TRUE(IsSequence(dq, out.dq, b)) << problem.Describe();
    for (size_t n = 0; n < segments.size(); ++n) {
      ASSERT_TRUE(IsSequence(dk[n], out.dk[n], b)) << problem.Describe();
      ASSERT_TRUE(IsSequence(dv[n], out.dv[n], b)) << problem.Describe();
    }
  }
}

TEST_P(CpuInvarianceTest, ASequenceAloneGivesTheBitsItGivesInABatch) {
  ProblemOptions options = Options();
  options.bias = false;  // its columns would move with the padding
  const Device device(2);
  for (uint32_t seed = 100; seed < 100 + kProblems; ++seed) {
    const RandomProblem problem(seed, options);
    CheckForwardAlone(device, problem);
    CheckBackwardAlone(device, problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuInvarianceTest,
                         ::testing::ValuesIn(InvarianceShapes()), ShapeName);

}  // namespace
}  // namespace attnd
