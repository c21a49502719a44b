#ifndef ATTND_TESTS_BENCH_GPU_PLAN_CASES_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_CASES_H_

// What plan_bench measures, and which part of one device's speed it should
// reach.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/plan_kind.h"

namespace attnd::bench {

// `batch` sequences in bf16: Q is [batch, len, q_heads, dim], K and V
// [batch, columns(), kv_heads, dim].
struct Shape {
  int64_t batch = 1, len = 0;
  int64_t q_heads = 16, kv_heads = 16;
  int64_t dim = 128;
  bool causal = true;
  int64_t left = -1;  // of the window; -1: none
  // Of K and V, where they are not as long as Q; rows are then the last ones.
  std::optional<int64_t> kv_len = {};
  // How long each sequence is, no longer than `len`; none: all of them as long.
  std::vector<int64_t> lens = {};

  std::string name() const;
  int64_t columns() const { return kv_len.value_or(len); }
  // Of Q, of K, and of LSE.
  int64_t elements() const { return batch * len * q_heads * dim; }
  int64_t kv_elements() const { return batch * columns() * kv_heads * dim; }
  int64_t rows() const { return batch * len * q_heads; }
  // What devices, each with as many of a window's tokens in a row, must fetch
  // from each other: forward K and V, backward Q, dO, LSE and delta, and f32
  // terms of dQ. Nothing where there is no window.
  std::optional<int64_t> NeededBytes(Op op, int devices) const;
};

inline const char* OpName(Op op) {
  return op == Op::kForward ? "forward" : "backward";
}

// One kind of plan for a shape. Bars are percent of one device's speed.
struct Wanted {
  std::string section;
  PlanKind kind = PlanKind::kGather;
  std::optional<double> forward_bar, backward_bar;

  const std::optional<double>& bar(Op op) const {
    return op == Op::kForward ? forward_bar : backward_bar;
  }
};

struct Case {
  Shape shape;
  std::vector<Wanted> wanted;
};

inline constexpr const char* kSectionNames[] = {
    "causal", "full", "window", "gqa", "heads", "ring", "striped", "zigzag"};

// Cases of the sections with `only` in their names, with lengths and windows a
// `shrink`th of what they are.
std::vector<Case> Cases(const std::string& only, int64_t shrink);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_CASES_H_
