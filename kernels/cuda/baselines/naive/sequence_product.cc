#include "kernels/cuda/baselines/naive/sequence_product.h"

#include <algorithm>

namespace attnd::cuda {
namespace {

// A sum over all heads' rows in f32 is less exact than one of each head's sum:
// too much so where nothing else is rounded.
bool MayShareSums(DType inputs, HeadSums sums) {
  return sums == HeadSums::kTogether && inputs != DType::kF32;
}

}  // namespace

std::vector<ScoreBlock> ScoreBlocks(const Problem& p) {
  const bool ragged = !p.q_lens.empty() || std::any_of(p.kv.begin(), p.kv.end(),
                                                       [](const KvSegment& s) {
                                                         return !s.lens.empty();
                                                       });
  const int64_t step = ragged ? 1 : p.batch;
  std::vector<ScoreBlock> blocks;
  std::vector<bool> has_begun(ragged ? p.batch : 1);
  int64_t column = 0;
  for (size_t n = 0; n < p.kv.size(); ++n) {
    for (int64_t b = 0; b < p.batch; b += step) {
      const int64_t q_len = QLen(p, b), kv_len = KvLen(p.kv[n], b);
      if (q_len == 0 || kv_len == 0) continue;
      blocks.push_back({.sequences = {b, b + step},
                        .segment = static_cast<int>(n),
                        .column = column,
                        .q_len = q_len,
                        .kv_len = kv_len,
                        .is_first = !has_begun[b]});
      has_begun[b] = true;
    }
    column += p.kv[n].len;
  }
  return blocks;
}

SequenceProduct::SequenceProduct(const Problem& problem,
                                 const Sequences& sequences, int64_t m,
                                 int64_t n, int64_t k)
    : problem_(problem), sequences_(sequences) {
  product_.dtype = problem.dtype();
  product_.m = m;
  product_.n = n;
  product_.k = k;
  product_.repeats[0].count = sequences.last - sequences.first;
  product_.repeats[1].count = problem.kv_heads;
  product_.repeats[2].count = problem.group();
}

template <class Void>
Void* SequenceProduct::Place(const BasicTensorView<Void>& tensor, Heads heads,
                             int64_t Repeat::*stride) {
  const int64_t of_kv_head = heads == Heads::kQ ? problem_.group() : 1;
  product_.repeats[0].*stride = tensor.batch_stride;
  product_.repeats[1].*stride = of_kv_head * tensor.head_stride;
  product_.repeats[2].*stride = heads == Heads::kQ ? tensor.head_stride : 0;
  return Advance(tensor.data, tensor.dtype,
                 sequences_.first * tensor.batch_stride);
}

SequenceProduct& SequenceProduct::A(const ConstTensorView& tensor,
                                    Heads heads) {
  product_.a = Place(tensor, heads, &Repeat::a);
  product_.lda = tensor.token_stride;
  return *this;
}

SequenceProduct& SequenceProduct::TransposedA(const ConstTensorView& tensor,
                                              Heads heads) {
  product_.a_transposed = true;
  return A(tensor, heads);
}

SequenceProduct& SequenceProduct::B(const ConstTensorView& tensor,
                                    Heads heads) {
  product_.b = Place(tensor, heads, &Repeat::b);
  product_.ldb = tensor.token_stride;
  return *this;
}

SequenceProduct& SequenceProduct::TransposedB(const ConstTensorView& tensor,
                                              Heads heads) {
  product_.b_transposed = true;
  return B(tensor, heads);
}

SequenceProduct& SequenceProduct::C(const TensorView& tensor, Heads heads,
                                    bool accumulate) {
  product_.c = Place(tensor, heads, &Repeat::c);
  product_.ldc = tensor.token_stride;
  product_.c_dtype = tensor.dtype;
  product_.accumulate = accumulate;
  return *this;
}

SequenceProduct& SequenceProduct::Scale(float scale) {
  product_.scale = scale;
  return *this;
}

std::vector<Product> SumOverHeads(Product product, HeadSums sums) {
  const Repeat heads = product.repeats[2];
  product.repeats[2] = {};
  if (MayShareSums(product.dtype, sums) && heads.a == product.k * product.lda &&
      heads.b == product.k * product.ldb) {
    product.k *= heads.count;
    return {product};
  }
  std::vector<Product> each(heads.count, product);
  for (int64_t n = 0; n < heads.count; ++n) {
    each[n].a = Advance(product.a, product.dtype, n * heads.a);
    each[n].b = Advance(product.b, product.dtype, n * heads.b);
    each[n].accumulate = product.accumulate || n > 0;
  }
  return each;
}

bool SumsAtOnce(const Problem& p, const ConstTensorView& b, HeadSums sums) {
  return p.group() == 1 || (MayShareSums(p.dtype(), sums) && p.q_lens.empty() &&
                            b.head_stride == p.q_len * b.token_stride);
}

}  // namespace attnd::cuda
