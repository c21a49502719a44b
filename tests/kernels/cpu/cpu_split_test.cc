// What is shared out among tasks: the columns of a few queries, the slabs of
// backward, and waves of a group.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/flash_plan.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/thinned.h"

namespace attnd::cpu {
namespace {

using testing::CheckBackward;
using testing::CheckForward;
using testing::ForwardOnly;
using testing::OnEveryTarget;
using testing::ProblemOptions;
using testing::RandomProblem;

// How many random problems are planned, and of those that are shared out among
// the most tasks how many are computed; see thinned.h.
constexpr int kProblems = 12;
constexpr int kComputed = testing::kProblemStep > 1 ? 2 : kProblems;

// A backend of two threads, which all the tests use.
class CpuSplitTest : public ::testing::Test {
 protected:
  ::testing::AssertionResult Forward(const RandomProblem& problem) {
    return CheckForward(problem, [&](const ForwardArgs& args) {
      return testing::RunForward(*stream_, {&args, 1});
    });
  }
  ::testing::AssertionResult Backward(const RandomProblem& problem) {
    return CheckBackward(problem, [&](const BackwardArgs& args) {
      return testing::RunBackward(*stream_, {&args, 1});
    });
  }

  const std::unique_ptr<Backend> backend_ =
      CreateCpuBackend({.threads = 2}).value();
  const std::unique_ptr<Stream> stream_ = backend_->NewStream().value();
};

// The most parts that any of the plan's tasks is one of.
int64_t Parts(const FlashPlan& plan, FlashTask::Kind kind) {
  int64_t parts = 0;
  for (const FlashWave& wave : plan.waves) {
    for (const std::vector<FlashTask>& tasks : wave.turns) {
      for (const FlashTask& task : tasks) {
        if (task.kind == kind) parts = std::max(parts, task.parts);
      }
    }
  }
  return parts;
}
int64_t ForwardParts(const RandomProblem& problem) {
  auto out = problem.MakeForwardOutputs();
  const ForwardArgs args = problem.Forward(out);
  return Parts(PlanForward({&args, 1}, 2), FlashTask::Kind::kForward);
}
int64_t BackwardParts(const RandomProblem& problem) {
  auto out = problem.MakeBackwardOutputs();
  const BackwardArgs args = problem.Backward(out);
  return Parts(PlanBackward({&args, 1}, 2), FlashTask::Kind::kSlab);
}

// Runs check(problem) for the problems of `options(seed)` that have the most
// parts, and returns how many parts that is.
template <class Options, class Parts, class Check>
int64_t ForTheMostShared(Options options, Parts parts, Check check) {
  std::vector<std::pair<int64_t, int>> seeds;  // by parts
  for (int seed = 0; seed < kProblems; ++seed) {
    seeds.push_back({-parts(RandomProblem(seed, options(seed))), seed});
  }
  std::sort(seeds.begin(), seeds.end());
  for (int i = 0; i < kComputed; ++i) {
    const int seed = seeds[i].second;
    check(RandomProblem(seed, options(seed)));
  }
  return -seeds.front().first;
}

TEST_F(CpuSplitTest, ColumnsOfAFewQueriesAreSharedOut) {
  for (const int64_t dim : {0, 64, 128}) {
    const auto options = [dim](int) {
      ProblemOptions options = ForwardOnly();
      options.max_q_len = 8;
      options.max_kv_len = 1500;
      options.max_kv_heads = 18;
      options.max_batch = 2;
      options.head_dim = options.value_dim = dim;
      return options;
    };
    EXPECT_GT(ForTheMostShared(options, ForwardParts,
                               [&](const RandomProblem& problem) {
                                 OnEveryTarget(
                                     [&] { ASSERT_TRUE(Forward(problem)); });
                               }),
              2);
  }
}

TEST_F(CpuSplitTest, ColumnsOfOneHeadAreSharedOut) {
  const auto options = [](int) {
    ProblemOptions options = ForwardOnly();
    options.max_q_len = 300;
    options.max_kv_len = 4000;
    options.max_batch = options.max_kv_heads = 1;
    options.max_dim = 40;
    return options;
  };
  EXPECT_GT(
      ForTheMostShared(options, ForwardParts,
                       [&](const RandomProblem& problem) {
                         OnEveryTarget([&] { ASSERT_TRUE(Forward(problem)); });
                       }),
      1);
}

TEST_F(CpuSplitTest, SlabsAddUpToDq) {
  const auto options = [](int seed) {
    ProblemOptions options;
    options.max_kv_len = 3000;
    options.max_batch = 1;
    options.max_group = 2;
    options.max_dim = 24;
    options.max_kv_heads = seed % 3 == 0 ? 40 : 2;
    options.max_q_len = seed % 3 == 0 ? 20 : 200;
    return options;
  };
  EXPECT_GT(
      ForTheMostShared(options, BackwardParts,
                       [&](const RandomProblem& problem) {
                         OnEveryTarget([&] { ASSERT_TRUE(Backward(problem)); });
                       }),
      8);
}

}  // namespace
}  // namespace attnd::cpu
