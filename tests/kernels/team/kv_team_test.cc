// The shapes that kv is for, on virtual CPU devices: few rows over many
// columns, of few sequences and of many.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/sequence_alone.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::Cpus;
using testing::Device;
using testing::ForwardBits;
using testing::OwnedRows;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::TeamOf;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kProblems = 6;
#else
constexpr uint32_t kProblems = 30;
#endif

// Rows of decode, and of a draft that is to be verified.
ProblemOptions Decode() {
  ProblemOptions options = testing::ServedOptions();
  options.max_q_len = 16;
  options.max_kv_len = 3000;
  return options;
}

ProblemOptions ManySequences() {
  ProblemOptions options = testing::ServedOptions();
  options.max_batch = 40;
  options.max_q_len = 4;
  options.max_kv_len = 400;
  options.max_dim = 32;
  return options;
}

// None, one, or two.
ProblemOptions NextToNothing() {
  ProblemOptions options = testing::ServedOptions();
  options.max_batch = 9;
  options.max_q_len = 2;
  options.max_kv_len = 1;
  return options;
}

class KvTeamTest : public ::testing::TestWithParam<int> {
 protected:
  static GroupOptions Options() {
    return {.deterministic = true, .plan = PlanKind::kKv};
  }
  // Other problems for each number of devices.
  static uint32_t Seed(uint32_t i) {
    return i + 1000 * static_cast<uint32_t>(GetParam());
  }
  void ExpectKeepsTheContract(const ProblemOptions& options) {
    for (uint32_t i = 0; i < kProblems; ++i) {
      const RandomProblem problem(Seed(i), options);
      ASSERT_TRUE(testing::CheckForward(problem, [&](const ForwardArgs& args) {
        return team_.Forward(args, Options());
      })) << problem.Describe();
      // Sums of several terms are rounded more often.
      ASSERT_TRUE(testing::CheckBackward(
          problem,
          [&](const BackwardArgs& args) {
            return team_.Backward(args, Options());
          },
          testing::Slack::kApproximations))
          << problem.Describe();
    }
  }
  void ExpectTheSameBitsAgain(const ProblemOptions& options) {
    for (uint32_t i = 0; i < kProblems / 3; ++i) {
      const RandomProblem problem(Seed(i), options);
      ASSERT_EQ(ForwardBits(team_, problem, Options()),
                ForwardBits(team_, problem, Options()))
          << problem.Describe();
      ASSERT_EQ(testing::BackwardBits(team_, problem, Options()),
                testing::BackwardBits(team_, problem, Options()))
          << problem.Describe();
    }
  }

  TeamOf cpu_{Cpus(GetParam())};
  Device& team_ = *cpu_.team;
};

TEST_P(KvTeamTest, DecodeKeepsTheContract) { ExpectKeepsTheContract(Decode()); }

TEST_P(KvTeamTest, ManySequencesKeepTheContract) {
  ExpectKeepsTheContract(ManySequences());
}

TEST_P(KvTeamTest, NextToNothingKeepsTheContract) {
  ExpectKeepsTheContract(NextToNothing());
}

TEST_P(KvTeamTest, GivesTheSameBitsAgain) {
  ExpectTheSameBitsAgain(Decode());
  ExpectTheSameBitsAgain(ManySequences());
}

// Wherever in a batch it is, and so on whichever device it begins.
TEST_P(KvTeamTest, ASequenceAloneHasTheBitsThatItHasInABatch) {
  ProblemOptions options = ManySequences();
  options.bias = options.backward = false;
  options.max_batch = 9;
  for (uint32_t i = 0; i < kProblems; ++i) {
    const RandomProblem problem(Seed(i), options);
    RandomProblem::ForwardOutputs out = problem.MakeForwardOutputs();
    const ForwardArgs all = problem.Forward(out);
    ASSERT_TRUE(team_.Forward(all, Options()).ok());
    const Problem& p = problem.problem();
    for (int64_t b = 0; b < p.batch; ++b) {
      std::vector<KvSegment> segments;
      ForwardArgs args;
      args.problem = testing::Alone(p, b, &segments);
      const int64_t rows = QLen(p, b);
      OwnedTensor o = testing::AloneLike(out.o, rows);
      OwnedRows lse(1, p.q_heads, rows);
      if (all.o) args.o = o.view();
      if (all.lse) args.lse = lse.view();
      ASSERT_TRUE(team_.Forward(args, Options()).ok());
      EXPECT_TRUE(testing::IsSequence(o, out.o, b)) << problem.Describe();
      EXPECT_TRUE(testing::IsSequence(lse, out.lse, b, p.q_heads, rows))
          << problem.Describe();
    }
  }
}

TEST_P(KvTeamTest, SaysWhatItRanAs) {
  ProblemOptions something = Decode();
  something.empty_sizes = something.lens = something.masks = false;
  const RandomProblem problem(1, something);
  ForwardBits(team_, problem, Options());
  EXPECT_EQ(team_.report.kind,
            GetParam() == 1 ? PlanKind::kOneDevice : PlanKind::kKv);
  EXPECT_EQ(team_.report.devices.size(), GetParam());
  EXPECT_GT(team_.report.predicted, absl::ZeroDuration());
}

INSTANTIATE_TEST_SUITE_P(All, KvTeamTest, ::testing::Values(1, 2, 3, 4, 7),
                         [](const ::testing::TestParamInfo<int>& info) {
                           return absl::StrCat(info.param, "devices");
                         });

}  // namespace
}  // namespace attnd
