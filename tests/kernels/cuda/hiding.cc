#include "tests/kernels/cuda/hiding.h"

#include "kernels/mask.h"

namespace attnd::testing {
namespace {

constexpr Hiding kHidings[] = {
    {"NoKeys", 0, true, [](HidingProblem&) {}},
    {"NoSegments", 0, true, [](HidingProblem& of) { of.problem.kv = {}; }},
    {"EmptySegments", kHidingKvLen, true,
     [](HidingProblem& of) {
       of.kv_lens.assign(kHidingBatch, 0);
       of.segments[0].lens = of.kv_lens;
       of.segments.resize(3, of.segments[0]);
       of.problem.kv = of.segments;
     }},
    {"AllKeysAhead", kHidingKvLen, true,
     [](HidingProblem& of) {
       of.problem.mask.causal = true;
       of.problem.q_start = -of.problem.q_len - 100;
     }},
    {"AllKeysLeftOfTheWindow", kHidingKvLen, true,
     [](HidingProblem& of) {
       of.problem.mask.left = 3;
       of.problem.q_start = kHidingKvLen + 3;
     }},
    {"NoQueries", kHidingKvLen, true,
     [](HidingProblem& of) {
       of.q_lens.assign(kHidingBatch, 0);
       of.problem.q_lens = of.q_lens;
     }},
    {"FirstRowsSeeNothing", kHidingKvLen, false,
     [](HidingProblem& of) {
       of.problem.mask.causal = true;
       of.problem.q_start = -of.problem.q_len / 2;
     }},
    {"LastRowsSeeNothing", kHidingKvLen, false,
     [](HidingProblem& of) {
       of.problem.mask.left = 2;
       of.problem.q_start = kHidingKvLen - 3;
     }},
    {"OneSequenceHasKeys", kHidingKvLen, false,
     [](HidingProblem& of) {
       of.kv_lens = {0, kHidingKvLen, 0};
       of.segments[0].lens = of.kv_lens;
     }},
    {"Padding", kHidingKvLen, false,
     [](HidingProblem& of) {
       of.q_lens = {0, of.problem.q_len, of.problem.q_len / 2};
       of.problem.q_lens = of.q_lens;
     }},
};

}  // namespace

bool HidingProblem::Sees(int64_t b, int64_t row) const {
  if (row >= QLen(problem, b)) return false;
  for (const KvSegment& s : problem.kv) {
    if (!MakeRowIntervals(problem, b, s).Row(row).empty()) return true;
  }
  return false;
}

bool HidingProblem::IsSeen(int64_t b, int64_t column) const {
  if (problem.kv.empty()) return false;
  const RowIntervals intervals =
      MakeRowIntervals(problem, b, problem.kv.front());
  for (int64_t i = 0; i < QLen(problem, b); ++i) {
    const Interval seen = intervals.Row(i);
    if (seen.lo <= column && column < seen.hi) return true;
  }
  return false;
}

absl::Span<const Hiding> Hidings() { return kHidings; }

}  // namespace attnd::testing
