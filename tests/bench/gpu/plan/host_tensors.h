#ifndef ATTND_TESTS_BENCH_GPU_PLAN_HOST_TENSORS_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_HOST_TENSORS_H_

// The host's side of every case: inputs, what one device has computed, and what
// others have, in memory that copies are fast from and to.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace attnd::bench {

// Results of one forward and one backward. All are bf16 but LSE.
struct Outputs {
  std::byte *o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  std::byte* lse = nullptr;
};

// Elements of the largest tensors that there must be memory for.
struct TensorSizes {
  int64_t q = 0, kv = 0;      // Q and O; K and V
  int64_t d_q = 0, d_kv = 0;  // dO and dQ; dK and dV
  int64_t rows = 0;           // LSE

  // Of all that HostTensors has of them.
  int64_t bytes() const {
    return 2 * (3 * q + 2 * kv + 3 * d_q + 4 * d_kv) + 2 * 4 * rows;
  }
};

// Memory for the largest case, of which each uses the beginning. The process
// ends where there is none.
class HostTensors {
 public:
  // Inputs get random values, about normal, the same in every process.
  HostTensors(std::shared_ptr<HostMemory> memory, const TensorSizes& sizes);
  // All tensors of as many elements.
  HostTensors(std::shared_ptr<HostMemory> memory, int64_t elements,
              int64_t rows)
      : HostTensors(std::move(memory),
                    {elements, elements, elements, elements, rows}) {}
  ~HostTensors();
  HostTensors(const HostTensors&) = delete;
  HostTensors& operator=(const HostTensors&) = delete;

  // bf16 each.
  const std::byte* q() const { return q_; }
  const std::byte* k() const { return k_; }
  const std::byte* v() const { return v_; }
  const std::byte* d_o() const { return d_o_; }
  // Of one device, and of whoever else ran last.
  const Outputs& reference() const { return reference_; }
  const Outputs& got() const { return got_; }

 private:
  struct Block {
    std::byte* memory;
    int64_t bytes;
  };
  std::byte* Allocate(int64_t bytes);
  Outputs AllocateOutputs(const TensorSizes& sizes);

  const std::shared_ptr<HostMemory> memory_;
  std::vector<Block> blocks_;
  std::byte *q_, *k_, *v_, *d_o_;
  Outputs reference_, got_;
};

// NaN everywhere.
void FillWithNan(std::byte* memory, int64_t bytes);
bool AreEqual(const std::byte* a, const std::byte* b, int64_t bytes);
// Equal bytes have equal ones, others hardly ever.
uint64_t Fingerprint(const std::byte* memory, int64_t bytes);

// How far results are from one device's: the largest norm of a difference of
// two vectors of `dim` elements, one token's of one head, in parts of the
// reference's norm plus the root of the mean square of all such norms. Infinite
// where something is NaN. bf16 each.
double LargestDifference(const std::byte* got, const std::byte* reference,
                         int64_t elements, int64_t dim);
// The largest difference of two f32. Infinite where something is NaN.
double LargestFloatDifference(const std::byte* got, const std::byte* reference,
                              int64_t elements);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_HOST_TENSORS_H_
