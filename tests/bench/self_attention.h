#ifndef ATTND_TESTS_BENCH_SELF_ATTENTION_H_
#define ATTND_TESTS_BENCH_SELF_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/backend.h"

namespace attnd::bench {

// Prints why, and ends the program, unless all is well.
void Require(const absl::Status& status);

// Self-attention [1, len, heads, dim] in host memory, with random data and all
// its outputs. Backward reads what forward has written.
class SelfAttention {
 public:
  SelfAttention(int64_t len, int64_t heads, int64_t dim, DType dtype,
                bool causal);
  SelfAttention(const SelfAttention&) = delete;
  SelfAttention& operator=(const SelfAttention&) = delete;

  void Run(Op op, Stream& stream, const GroupOptions& options = {});

  // Two products of the pairs that the mask leaves, or five.
  double flops(Op op) const;
  const Problem& problem() const { return forward_.problem; }

  CancelToken cancel;

 private:
  using Bytes = std::vector<std::byte>;

  Bytes Random();
  template <typename Void>
  BasicTensorView<Void> View(Bytes& bytes) const {
    return {bytes.data(), dtype_, 0, heads_ * dim_, dim_};
  }

  const int64_t len_, heads_, dim_;
  const DType dtype_;
  std::mt19937 random_{1};
  std::normal_distribution<float> normal_;
  Bytes q_, k_, v_, o_, d_o_, dq_, dk_, dv_;
  std::vector<float> lse_;
  KvSegment segment_;
  ForwardArgs forward_;
  BackwardArgs backward_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SELF_ATTENTION_H_
