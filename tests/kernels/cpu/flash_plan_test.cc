#include "kernels/cpu/flash_plan.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/flash_scratch.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/run_group.h"
#include "tests/thinned.h"

namespace attnd::cpu {
namespace {

using testing::OwnedRows;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using Kind = FlashTask::Kind;

std::vector<FlashTask> Tasks(const FlashPlan& plan) {
  std::vector<FlashTask> tasks;
  for (const FlashWave& wave : plan.waves) {
    for (const auto& turn : wave.turns) {
      tasks.insert(tasks.end(), turn.begin(), turn.end());
    }
  }
  return tasks;
}

// Long and short sequences, a few and many heads.
ProblemOptions Options(int seed) {
  ProblemOptions options;
  if (seed % 7 == 0) {  // the largest tiles, of many kv heads
    options.head_dim = options.value_dim = seed % 2 == 0 ? 255 : 256;
    options.max_batch = 1;
    options.max_q_len = seed % 3 == 0 ? 4 : 200;
    options.max_kv_len = 200;
    options.max_kv_heads = seed % 3 == 0 ? 20 : 1;
    return options;
  }
  options.max_q_len = seed % 2 == 0 ? 6 : 500;
  options.max_kv_len = seed % 3 == 0 ? 80 : 2000;
  options.max_kv_heads = seed % 5 == 0 ? 40 : 2;
  options.max_dim = 32;
  return options;
}

// A problem, its outputs and views of both.
struct Case {
  explicit Case(int seed) : problem(seed, Options(seed)) {}
  const RandomProblem problem;
  RandomProblem::ForwardOutputs o = problem.MakeForwardOutputs();
  RandomProblem::BackwardOutputs gradients = problem.MakeBackwardOutputs();
  const ForwardArgs forward = problem.Forward(o);
  const BackwardArgs backward = problem.Backward(gradients);
};
constexpr int kCases = 30 / testing::kProblemStep;

// Counts of [batch, heads, len].
class Counts {
 public:
  Counts(int64_t heads, int64_t len) : heads_(heads), len_(len) {}
  void Add(int64_t b, int64_t head, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const size_t at = (b * heads_ + head) * len_ + i;
      if (counts_.size() <= at) counts_.resize(at + 1);
      ++counts_[at];
    }
  }
  // Whether just [0, len) of b and head were added, once.
  bool Once(int64_t b, int64_t head, int64_t len) const {
    for (int64_t i = 0; i < len_; ++i) {
      const size_t at = (b * heads_ + head) * len_ + i;
      const int count = at < counts_.size() ? counts_[at] : 0;
      if (count != (i < len ? 1 : 0)) return false;
    }
    return true;
  }

 private:
  const int64_t heads_, len_;
  std::vector<int> counts_;
};

TEST(FlashPlanTest, ForwardComputesEveryRowOnceAndSharesOutItsColumns) {
  for (int seed = 0; seed < kCases; ++seed) {
    const Case c(seed);
    const Problem& p = c.forward.problem;
    SCOPED_TRACE(c.problem.Describe());
    Counts rows(p.q_heads, p.q_len);
    std::vector<FlashTask> tasks = Tasks(PlanForward({&c.forward, 1}, 2));
    std::stable_sort(
        tasks.begin(), tasks.end(),
        [](const auto& a, const auto& b) { return a.part < b.part; });
    for (const FlashTask& task : tasks) {
      if (task.kind != Kind::kForward || task.part > 0) continue;
      for (int64_t kv = 0; kv < task.kv_heads; ++kv) {
        for (int64_t h = 0; h < task.heads; ++h) {
          rows.Add(task.b, task.head + kv * p.group() + h, task.first,
                   task.count);
        }
      }
      // Its parts follow one another, in whole tiles.
      Sequence sequence;
      sequence.Reset(p, task.b);
      int64_t column = 0, parts = 0;
      for (const FlashTask& part : tasks) {
        if (part.kind != Kind::kForward || part.b != task.b ||
            part.head != task.head || part.first != task.first) {
          continue;
        }
        EXPECT_EQ(part.part, parts++);
        EXPECT_EQ(part.parts, task.parts);
        EXPECT_EQ(part.columns.lo, column);
        EXPECT_EQ(part.columns.lo % kTileTokens, 0);
        column = part.columns.hi;
      }
      EXPECT_EQ(parts, task.parts);
      EXPECT_EQ(column,
                sequence.Columns(task.first, task.first + task.count - 1));
    }
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.q_heads; ++h) {
        EXPECT_TRUE(rows.Once(b, h, QLen(p, b))) << b << " " << h;
      }
    }
  }
}

TEST(FlashPlanTest, BackwardCutsEverySequenceIntoSlabs) {
  for (int seed = 0; seed < kCases; ++seed) {
    const Case c(seed);
    const Problem& p = c.backward.problem;
    SCOPED_TRACE(c.problem.Describe());
    const FlashPlan plan = PlanBackward({&c.backward, 1}, 2);
    Counts columns(p.kv_heads, PaddedKvLen(p)), packed(p.q_heads, p.q_len);
    std::vector<Piece> pieces;
    Sequence sequence;
    bool packs = false;
    for (const FlashTask& task : Tasks(plan)) {
      if (task.kind == Kind::kPackQ) {
        packs = true;
        packed.Add(task.b, task.head, task.first, task.count);
      }
      if (task.kind != Kind::kSlab) continue;
      const Slab& slab = plan.Slabs(task)[task.part];
      columns.Add(task.b, task.head, slab.columns.lo, slab.columns.size());
      sequence.Reset(p, task.b);
      sequence.Pieces(slab.columns.lo, slab.columns.size(), &pieces);
      const Interval rows = sequence.RowsThatSee(pieces);
      if (rows.empty()) continue;
      EXPECT_LE(slab.rows.lo, rows.lo);
      EXPECT_GE(slab.rows.hi, rows.hi);
    }
    const bool wanted = c.backward.dq ||
                        std::any_of(p.kv.begin(), p.kv.end(),
                                    [](const auto& s) { return s.dk || s.dv; });
    if (!wanted || !HasOutputs(Op::kBackward, p)) continue;
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.kv_heads; ++h) {
        EXPECT_TRUE(columns.Once(b, h, KvLen(p, b))) << b << " " << h;
      }
      if (!packs || p.batch > 1) continue;
      for (int64_t h = 0; h < p.q_heads; ++h) {
        EXPECT_TRUE(packed.Once(b, h, QLen(p, b))) << h;
      }
    }
  }
}

// All that a result may depend on.
auto WhatItComputes(const FlashTask& t) {
  return std::make_tuple(t.kind, t.problem, t.b, t.head, t.heads, t.first,
                         t.count, t.kv_heads, t.part, t.parts, t.columns.lo,
                         t.columns.hi);
}

TEST(FlashPlanTest, ThreadsDecideNothingThatAResultDependsOn) {
  for (int seed = 0; seed < kCases; ++seed) {
    const Case c(seed);
    const auto computes = [](const FlashPlan& plan) {
      std::vector<decltype(WhatItComputes(FlashTask()))> all;
      for (const FlashTask& task : Tasks(plan)) {
        all.push_back(WhatItComputes(task));
      }
      std::sort(all.begin(), all.end());
      return all;
    };
    EXPECT_TRUE(computes(PlanForward({&c.forward, 1}, 1)) ==
                computes(PlanForward({&c.forward, 1}, 100)));
    EXPECT_TRUE(computes(PlanBackward({&c.backward, 1}, 1)) ==
                computes(PlanBackward({&c.backward, 1}, 100)));
  }
}

// Runs the plan's tasks one after another and returns what they took: the
// plan's memory, the plan itself, and the worker's.
template <class Args, class Run>
int64_t TakenBytes(FlashPlan plan, const Args& args, Run run) {
  std::vector<float> memory(plan.workspace_floats() + 16);
  void* aligned = memory.data();
  size_t space = memory.size() * sizeof(float);
  plan.Place(static_cast<float*>(std::align(64, 1, aligned, space)));
  Scratch scratch;
  int64_t worker = 0, tasks = 0;
  for (const FlashTask& task : Tasks(plan)) {
    scratch.Begin();
    run(plan, args, task, scratch);
    worker = std::max(worker, scratch.used());
    EXPECT_LE(worker, Scratch::kCapacity);
    ++tasks;
  }
  return (plan.workspace_floats() + worker) * sizeof(float) +
         tasks * sizeof(FlashTask);
}

TEST(FlashPlanTest, NothingTakesMoreMemoryThanIsSaid) {
  const auto forward = [](const FlashPlan&, const ForwardArgs& args,
                          const FlashTask& task, Scratch& scratch) {
    if (task.kind == Kind::kPackKv) RunFlashPackKv(args, task, scratch);
    if (task.kind == Kind::kForward) RunFlashForward(args, task, scratch);
    if (task.kind == Kind::kMerge) RunFlashMerge(args, task, scratch);
  };
  const auto backward = [](const FlashPlan& plan, const BackwardArgs& args,
                           const FlashTask& task, Scratch& scratch) {
    if (task.kind == Kind::kPackQ) RunFlashPackQ(args, task);
    if (task.kind == Kind::kSlab) {
      int64_t first = plan.Slabs(task)[task.part].columns.lo;
      RunFlashSlab(
          args, task, plan.Slabs(task), scratch, [] { return false; }, first);
    }
    if (task.kind == Kind::kSum) RunFlashSum(args, task, plan.Slabs(task));
  };
  for (int seed = 0; seed < kCases; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(c.problem.Describe());
    const Problem& p = c.problem.problem();
    EXPECT_LE(TakenBytes(PlanForward({&c.forward, 1}, 1), c.forward, forward),
              FlashScratchBytes(Op::kForward, p, 1));
    EXPECT_LE(
        TakenBytes(PlanBackward({&c.backward, 1}, 1), c.backward, backward),
        FlashScratchBytes(Op::kBackward, p, 1));
  }
}

// 24 heads of 8192 keys, which no wave of two threads holds packed.
struct ManyHeads {
  static constexpr int64_t kRows = 300, kKeys = 8192, kHeads = 24, kDim = 64;

  ManyHeads() {
    for (OwnedTensor* t : {&q, &k, &v, &d_o}) {
      for (int64_t i = 0; i < t->tokens(); ++i) {
        for (int64_t h = 0; h < kHeads; ++h) {
          t->Set(0, i, h, i % kDim, static_cast<double>(i * h % 7) - 3);
        }
      }
    }
    segment.len = kKeys;
    segment.k = std::as_const(k).view();
    segment.v = std::as_const(v).view();
    segment.dk = dk.view();
    segment.dv = dv.view();
    Problem p;
    p.batch = 1;
    p.q_len = kRows;
    p.q_heads = p.kv_heads = kHeads;
    p.head_dim = p.value_dim = kDim;
    p.q = std::as_const(q).view();
    p.kv = {&segment, 1};
    p.scale = 0.125f;
    forward = {p, o.view(), lse.view()};
    backward.problem = p;
    backward.d_o = std::as_const(d_o).view();
    backward.o = std::as_const(o).view();
    backward.lse = std::as_const(lse).view();
    backward.dq = dq.view();
  }
  static OwnedTensor Zeros(int64_t tokens) {
    OwnedTensor t(DType::kF32, 1, tokens, kHeads, kDim);
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < kDim; ++d) t.Set(0, i, h, d, 0);
      }
    }
    return t;
  }
  std::vector<std::vector<uint8_t>> Bits() const {
    return {o.bytes(), lse.bytes(), dq.bytes(), dk.bytes(), dv.bytes()};
  }

  OwnedTensor q = Zeros(kRows), k = Zeros(kKeys), v = Zeros(kKeys);
  OwnedTensor d_o = Zeros(kRows), o = Zeros(kRows), dq = Zeros(kRows);
  OwnedTensor dk = Zeros(kKeys), dv = Zeros(kKeys);
  OwnedRows lse{1, kHeads, kRows};
  KvSegment segment;
  ForwardArgs forward;
  BackwardArgs backward;
};

TEST(FlashPlanTest, WavesBoundTheMemoryAndChangeNoBit) {
  ManyHeads many;
  const FlashPlan few = PlanForward({&many.forward, 1}, 1);
  const FlashPlan lots = PlanForward({&many.forward, 1}, 1000);
  EXPECT_GT(few.waves.size(), 1);
  EXPECT_EQ(lots.waves.size(), 1);
  EXPECT_LT(few.workspace_floats(), lots.workspace_floats());
  const int64_t mib =
      FlashScratchBytes(Op::kForward, many.forward.problem, 1) >> 20;
  EXPECT_LT(mib, 72);
  std::vector<std::vector<uint8_t>> bits;
  for (const int threads : {1, 40}) {
    const auto backend = CreateCpuBackend({.threads = threads}).value();
    const auto stream = backend->NewStream().value();
    for (OwnedTensor* t : {&many.o, &many.dq, &many.dk, &many.dv}) t->Poison();
    ASSERT_TRUE(testing::RunForward(*stream, {&many.forward, 1}).ok());
    ASSERT_TRUE(testing::RunBackward(*stream, {&many.backward, 1}).ok());
    if (bits.empty()) bits = many.Bits();
    EXPECT_TRUE(many.Bits() == bits);
  }
}

}  // namespace
}  // namespace attnd::cpu
