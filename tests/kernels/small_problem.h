#ifndef ATTND_TESTS_KERNELS_SMALL_PROBLEM_H_
#define ATTND_TESTS_KERNELS_SMALL_PROBLEM_H_

#include <cstdint>
#include <random>
#include <utility>

#include "kernels/attention.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd::testing {

// A small f32 problem that tests may change before using it.
struct SmallProblem {
  static constexpr int64_t kBatch = 2, kRows = 5, kColumns = 7, kHeads = 4,
                           kKvHeads = 2, kDim = 4, kValueDim = 3;

  explicit SmallProblem(uint32_t seed) : random(seed) {
    Fill(q);
    Fill(k);
    Fill(v);
    Fill(d_o);
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t i = 0; i < kRows; ++i) d_lse.Set(b, h, i, normal(random));
  }

  void Fill(OwnedTensor& t) {
    for (int64_t b = 0; b < t.batch(); ++b)
      for (int64_t i = 0; i < t.tokens(); ++i)
        for (int64_t h = 0; h < t.heads(); ++h)
          for (int64_t d = 0; d < t.dim(); ++d)
            t.Set(b, i, h, d, normal(random));
  }

  // `p` with the tensors' views; valid until the next call.
  Problem View() {
    Problem view = p;
    view.batch = kBatch;
    view.q_len = kRows;
    view.q_heads = kHeads;
    view.kv_heads = kKvHeads;
    view.head_dim = kDim;
    view.value_dim = kValueDim;
    view.q = std::as_const(q).view();
    segment.k = std::as_const(k).view();
    segment.v = std::as_const(v).view();
    segment.len = kColumns;
    view.kv = absl::MakeConstSpan(&segment, 1);
    if (with_bias) {
      const ConstTensorView b = std::as_const(bias).view();
      view.bias = {b.data, DType::kF32, b.batch_stride, b.head_stride,
                   b.token_stride};
    }
    return view;
  }

  std::mt19937 random;
  std::normal_distribution<double> normal;
  OwnedTensor q{DType::kF32, kBatch, kRows, kHeads, kDim};
  OwnedTensor k{DType::kF32, kBatch, kColumns, kKvHeads, kDim};
  OwnedTensor v{DType::kF32, kBatch, kColumns, kKvHeads, kValueDim};
  OwnedTensor d_o{DType::kF32, kBatch, kRows, kHeads, kValueDim};
  OwnedTensor bias{DType::kF32, kBatch, kRows, kHeads, kColumns, true};
  OwnedRows d_lse{kBatch, kHeads, kRows};
  bool with_bias = false;
  KvSegment segment;
  Problem p;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_SMALL_PROBLEM_H_
