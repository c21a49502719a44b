#ifndef ATTND_TESTS_KERNELS_RANDOM_PROBLEM_H_
#define ATTND_TESTS_KERNELS_RANDOM_PROBLEM_H_

// Random problems over the whole contract, with their memory. What lies past a
// sequence's lengths, and between rows, is NaN.

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd::testing {

// Bounds for what is drawn. The defaults are the whole contract, small.
struct ProblemOptions {
  std::vector<DType> dtypes = {DType::kF32, DType::kF16, DType::kBF16};
  int64_t max_batch = 3;
  int64_t max_q_len = 80;
  int64_t max_kv_len = 96;  // of a segment
  int64_t max_segments = 3;
  int64_t max_kv_heads = 2;
  int64_t max_group = 3;
  int64_t max_dim = 256;
  int64_t head_dim = 0, value_dim = 0;  // 0: drawn
  int64_t gap_step = 1;                 // gaps in memory are multiples of it
  bool empty_sizes = true;              // zero batch, lengths and segments
  bool lens = true;                     // per-sequence lengths
  bool masks = true;                    // causal, windows, positions
  bool bias = true;
  bool softcap = true;
  bool odd_scales = true;  // negative, zero, large
  bool backward = true;    // what it needs; Backward() is not called without
};

// The defaults, for forward alone: half the time to draw.
ProblemOptions ForwardOnly();

class RandomProblem {
 public:
  // The same seed and options always give the same problem.
  explicit RandomProblem(uint32_t seed, const ProblemOptions& options = {});

  RandomProblem(const RandomProblem&) = delete;
  RandomProblem& operator=(const RandomProblem&) = delete;

  const Problem& problem() const { return problem_; }
  // Enough elements for errors to be told apart from luck.
  bool IsLarge() const;
  // One line that says what was drawn, for failures.
  std::string Describe() const;

  // Where a run writes. Poisoned when made.
  struct ForwardOutputs {
    OwnedTensor o;
    OwnedRows lse;
  };
  struct BackwardOutputs {
    OwnedTensor dq;
    std::vector<OwnedTensor> dk, dv;  // one per segment
    std::vector<KvSegment> segments;  // with dk and dv set
  };
  ForwardOutputs MakeForwardOutputs() const;
  BackwardOutputs MakeBackwardOutputs() const;

  // Views of this problem and the outputs, both of which must outlive them.
  ForwardArgs Forward(ForwardOutputs& out) const;
  BackwardArgs Backward(BackwardOutputs& out) const;

 private:
  int64_t Int(int64_t low, int64_t high);  // uniform, both included
  int64_t Length(int64_t most);            // mostly small; may be 0
  bool Chance(double p);
  DType OutputType();
  OwnedTensor Tokens(int64_t len, absl::Span<const int64_t> lens, int64_t heads,
                     int64_t dim);
  OwnedRows Rows(double mean, double deviation);

  void DrawSizes();
  void DrawSegments();
  void DrawPositions();
  void DrawScores();  // scale, softcap, mask
  void DrawBias();
  void DrawUpstream();

  ProblemOptions options_;
  uint32_t seed_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;

  Problem problem_;
  std::vector<KvSegment> segments_;
  std::vector<OwnedTensor> k_, v_;
  OwnedTensor q_, bias_;
  std::vector<int64_t> q_lens_, q_starts_;
  std::vector<std::vector<int64_t>> kv_lens_, kv_starts_;

  OwnedTensor d_o_, o_;
  OwnedRows lse_, delta_, d_lse_;

  bool heads_first_ = false;
  int64_t gap_ = 0;
  DType o_dtype_, dq_dtype_, dk_dtype_, dv_dtype_;
  bool want_o_ = true, want_lse_ = true;
  bool want_dq_ = true, want_dk_ = true, want_dv_ = true;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_RANDOM_PROBLEM_H_
