#ifndef ATTND_TESTS_BENCH_RANDOM_ATTENTION_H_
#define ATTND_TESTS_BENCH_RANDOM_ATTENTION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cpu/aligned_memory.h"

namespace attnd::bench {

// Prints why, and ends the program, unless all is well.
void Require(const absl::Status& status);

struct AttentionShape {
  int64_t q_len = 1, kv_len = 1;
  int64_t q_heads = 1, kv_heads = 1;
  int64_t dim = 64;  // of heads and of values
  DType dtype = DType::kF32;
  bool causal = false;

  // Two products of the pairs that the mask leaves, or five.
  double flops(Op op) const;
  // Of K and V.
  double kv_bytes() const;
};

AttentionShape SelfAttention(int64_t len, int64_t heads, int64_t dim,
                             DType dtype = DType::kF32, bool causal = false);

// One sequence [1, len, heads, dim] in host memory, with random data and all
// its outputs. Backward reads what forward has written.
class RandomAttention {
 public:
  explicit RandomAttention(const AttentionShape& shape);
  RandomAttention(const RandomAttention&) = delete;
  RandomAttention& operator=(const RandomAttention&) = delete;

  void Run(Op op, Stream& stream, const GroupOptions& options = {});

  const AttentionShape& shape() const { return shape_; }
  const Problem& problem() const { return forward_.problem; }
  const ForwardArgs& forward() const { return forward_; }
  const BackwardArgs& backward() const { return backward_; }

  CancelToken cancel;

 private:
  // A tensor's memory, aligned as a server's.
  class Memory {
   public:
    Memory() = default;
    explicit Memory(int64_t bytes)
        : bytes_(bytes), data_(cpu::AllocateAligned(bytes), Free{bytes}) {
      if (data_ == nullptr) Require(absl::ResourceExhaustedError("no memory"));
      std::fill(data_.get(), data_.get() + bytes, std::byte{0});
    }
    std::byte* data() const { return data_.get(); }
    int64_t size() const { return bytes_; }

   private:
    struct Free {
      int64_t bytes;
      void operator()(std::byte* data) const { cpu::FreeAligned(data, bytes); }
    };
    int64_t bytes_ = 0;
    std::unique_ptr<std::byte, Free> data_{nullptr, Free{0}};
  };

  Memory Zeros(int64_t len, int64_t heads) const;
  void Randomize(Memory& memory);
  template <typename Void>
  BasicTensorView<Void> View(const Memory& memory, int64_t heads) const {
    return {memory.data(), shape_.dtype, 0, heads * shape_.dim, shape_.dim};
  }

  const AttentionShape shape_;
  std::mt19937 random_{1};
  std::normal_distribution<float> normal_;
  Memory q_, k_, v_, o_, d_o_, dq_, dk_, dv_;
  std::vector<float> lse_;
  KvSegment segment_;
  ForwardArgs forward_;
  BackwardArgs backward_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_RANDOM_ATTENTION_H_
