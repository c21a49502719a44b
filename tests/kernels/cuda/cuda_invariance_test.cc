// The same sequence gives the same bits, whatever runs beside it, every time.

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/sequence_alone.h"

namespace attnd {
namespace {

using testing::Alone;
using testing::AloneLike;
using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceRunner;
using testing::DeviceTest;
using testing::ForwardOnly;
using testing::InvarianceShape;
using testing::InvarianceShapes;
using testing::IsSequence;
using testing::OwnedRows;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::ShapeName;

constexpr uint32_t kProblems = 16;  // random ones of each shape

// The memory of O and LSE, in their own types.
using Bits = std::pair<std::vector<uint8_t>, std::vector<uint8_t>>;
using Group = std::vector<const RandomProblem*>;

// Each problem's outputs, all of them run as one group.
std::vector<Bits> Forward(DeviceRunner& device, const Group& problems) {
  std::vector<RandomProblem::ForwardOutputs> out;
  for (const RandomProblem* p : problems) {
    out.push_back(p->MakeForwardOutputs());
  }
  std::vector<ForwardArgs> group;
  for (size_t i = 0; i < problems.size(); ++i) {
    group.push_back(problems[i]->Forward(out[i]));
  }
  const auto counts = device.Forward(group);
  EXPECT_TRUE(counts.ok()) << counts.status();
  std::vector<Bits> bits;
  for (const auto& o : out) bits.push_back({o.o.bytes(), o.lse.bytes()});
  return bits;
}

Bits Forward(DeviceRunner& device, DenseProblem& problem) {
  problem.o.Poison();
  problem.lse.Poison();
  const auto counts = device.Forward({&problem.args, 1});
  EXPECT_TRUE(counts.ok()) << counts.status();
  return {problem.o.bytes(), problem.lse.bytes()};
}

class CudaInvarianceTest
    : public DeviceTest,
      public ::testing::WithParamInterface<InvarianceShape> {
 protected:
  // Several tiles; now and then columns enough to be cut.
  static ProblemOptions Options(uint32_t seed) {
    ProblemOptions options = ForwardOnly();
    options.dtypes = {GetParam().dtype};
    options.head_dim = GetParam().head_dim;
    options.value_dim = GetParam().value_dim;
    options.max_q_len = options.max_kv_len = 250;
    options.max_segments = options.max_group = 2;
    if (seed % 4 == 3) {
      options.max_q_len = 4;
      options.max_kv_len = 9000;
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

  void CheckAlone(const RandomProblem& problem);
};

TEST_P(CudaInvarianceTest, AnyGroupGivesTheSameBits) {
  const auto problems = Problems();
  std::vector<Bits> alone;
  for (const auto& p : problems) {
    alone.push_back(Forward(device(), Group{p.get()})[0]);
  }
  std::vector<size_t> order(problems.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    // Some of them, in any order; in the first round all.
    const size_t size = round == 0 ? order.size() : 2 + random() % 14;
    Group group;
    for (size_t i = 0; i < size; ++i) group.push_back(problems[order[i]].get());
    const std::vector<Bits> got = Forward(device(), group);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_TRUE(got[i] == alone[order[i]])
          << i << " of " << size << ": " << group[i]->Describe();
    }
    std::shuffle(order.begin(), order.end(), random);
  }
}

// More problems than one launch's parameters can hold.
TEST_P(CudaInvarianceTest, ALargeGroupGivesTheSameBits) {
  const auto problems = Problems();
  std::vector<Bits> alone;
  Group group;
  for (const auto& p : problems) {
    alone.push_back(Forward(device(), Group{p.get()})[0]);
  }
  for (int copy = 0; copy < 8; ++copy) {
    for (const auto& p : problems) group.push_back(p.get());
  }
  const std::vector<Bits> got = Forward(device(), group);
  for (size_t i = 0; i < group.size(); ++i) {
    ASSERT_TRUE(got[i] == alone[i % kProblems]) << group[i]->Describe();
  }
}

TEST_P(CudaInvarianceTest, GroupsInARowDoNotDisturbEachOther) {
  const auto problems = Problems();
  std::vector<Bits> alone;
  std::vector<RandomProblem::ForwardOutputs> out;
  for (const auto& p : problems) {
    alone.push_back(Forward(device(), Group{p.get()})[0]);
    out.push_back(p->MakeForwardOutputs());
  }
  DeviceRunner::Groups groups(problems.size() / 2);
  for (size_t i = 0; i < problems.size(); ++i) {
    groups[i / 2].push_back(problems[i]->Forward(out[i]));
  }
  const auto counts = device().ForwardEach(groups);
  ASSERT_TRUE(counts.ok()) << counts.status();
  for (size_t i = 0; i < problems.size(); ++i) {
    EXPECT_TRUE(out[i].o.bytes() == alone[i].first &&
                out[i].lse.bytes() == alone[i].second)
        << problems[i]->Describe();
  }
}

void CudaInvarianceTest::CheckAlone(const RandomProblem& problem) {
  const Problem& p = problem.problem();
  auto out = problem.MakeForwardOutputs();
  const ForwardArgs args = problem.Forward(out);
  const auto counts = device().Forward({&args, 1});
  ASSERT_TRUE(counts.ok()) << counts.status();
  for (int64_t b = 0; b < p.batch; ++b) {
    std::vector<KvSegment> segments;
    ForwardArgs alone;
    alone.problem = Alone(p, b, &segments);
    const int64_t rows = alone.problem.q_len;
    OwnedTensor o = AloneLike(out.o, rows);
    OwnedRows lse(1, p.q_heads, rows);
    alone.o = o.view();
    alone.lse = lse.view();
    const auto counts = device().Forward({&alone, 1});
    ASSERT_TRUE(counts.ok()) << counts.status();
    ASSERT_TRUE(IsSequence(o, out.o, b)) << problem.Describe();
    ASSERT_TRUE(IsSequence(lse, out.lse, b, p.q_heads, rows))
        << problem.Describe();
  }
}

TEST_P(CudaInvarianceTest, ASequenceAloneGivesTheBitsItGivesInABatch) {
  for (uint32_t seed = 100; seed < 100 + kProblems; ++seed) {
    ProblemOptions options = Options(seed);
    options.bias = false;  // its columns would move with the padding
    CheckAlone(RandomProblem(seed, options));
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaInvarianceTest,
                         ::testing::ValuesIn(InvarianceShapes()), ShapeName);

class CudaFollowingTest : public DeviceTest,
                          public ::testing::WithParamInterface<int64_t> {};

// Where there are more tiles than a GPU has multiprocessors, some follow others
// without a pause; of one problem alone none does.
TEST_P(CudaFollowingTest, TilesThatFollowOthersHaveTheSameBits) {
  constexpr int kCopies = 80;
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (int64_t kv_len : {90, 500, 1300}) {
      const DenseShape shape = {.dtype = dtype,
                                .q_len = 200,
                                .kv_len = kv_len,
                                .q_heads = 2,
                                .dim = GetParam(),
                                .mask = {.causal = kv_len == 500}};
      DenseProblem alone(8, shape);
      const Bits expected = Forward(device(), alone);
      std::vector<std::unique_ptr<DenseProblem>> copies;
      std::vector<ForwardArgs> group;
      for (int i = 0; i < kCopies; ++i) {
        copies.push_back(std::make_unique<DenseProblem>(8, shape));
        group.push_back(copies.back()->args);
      }
      const auto counts = device().Forward(group);
      ASSERT_TRUE(counts.ok()) << counts.status();
      for (const auto& copy : copies) {
        ASSERT_TRUE(copy->o.bytes() == expected.first) << kv_len;
        ASSERT_TRUE(copy->lse.bytes() == expected.second) << kv_len;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, CudaFollowingTest,
                         ::testing::Values(64, 96, 128, 192, 256));

// Tiles of every kind, few and many, and rows whose columns are cut.
std::vector<DenseShape> RepeatedShapes() {
  std::vector<DenseShape> shapes;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    shapes.push_back({.dtype = dtype,
                      .batch = 2,
                      .q_len = 300,
                      .kv_len = 500,
                      .q_heads = 4,
                      .kv_heads = 2,
                      .dim = 128,
                      .mask = {.causal = true}});
    shapes.push_back({.dtype = dtype,
                      .q_len = 1,
                      .kv_len = 24000,
                      .q_heads = 8,
                      .kv_heads = 1,
                      .dim = 128});
    shapes.push_back({.dtype = dtype,
                      .batch = 3,
                      .q_len = 7,
                      .kv_len = 3001,
                      .q_heads = 6,
                      .kv_heads = 2,
                      .dim = 64,
                      .mask = {.left = 2500}});
    shapes.push_back({.dtype = dtype,
                      .q_len = 65,
                      .kv_len = 2100,
                      .q_heads = 2,
                      .kv_heads = 2,
                      .dim = 256});
  }
  return shapes;
}

class CudaRepeatTest : public DeviceTest,
                       public ::testing::WithParamInterface<DenseShape> {};

TEST_P(CudaRepeatTest, TwoHundredRunsGiveTheSameBits) {
  DenseProblem problem(7, GetParam());
  const Bits first = Forward(device(), problem);
  for (int run = 1; run < 200; ++run) {
    ASSERT_TRUE(Forward(device(), problem) == first) << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaRepeatTest,
                         ::testing::ValuesIn(RepeatedShapes()));

}  // namespace
}  // namespace attnd
