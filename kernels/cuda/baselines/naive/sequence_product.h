#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_SEQUENCE_PRODUCT_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_SEQUENCE_PRODUCT_H_

// Products of a problem's tensors: one for each of some sequences, K/V heads,
// and q heads of each K/V head.

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/baselines/naive/product.h"
#include "kernels/cuda/baselines/naive/steps.h"

namespace attnd::cuda {

// The sequences [first, last) of a problem, all of the same lengths.
struct Sequences {
  int64_t first, last;
};

// A part of S that a product makes: rows of some sequences, columns of one
// segment. None is without either.
struct ScoreBlock {
  Sequences sequences;
  int segment;
  int64_t column;         // where the segment begins among all columns
  int64_t q_len, kv_len;  // the sequences' own
  bool is_first;          // of these rows
};

// Segment after segment; all sequences together if their lengths are the same,
// since nothing past a sequence's own lengths may be read.
std::vector<ScoreBlock> ScoreBlocks(const Problem& problem);

// Whose heads a tensor has.
enum class Heads { kQ, kKv };

// Puts a product together, an operand at a time: the views' tokens are rows.
// There is at least one sequence, and m, n and k are at least 1.
class SequenceProduct {
 public:
  SequenceProduct(const Problem& problem, const Sequences& sequences, int64_t m,
                  int64_t n, int64_t k);

  SequenceProduct& A(const ConstTensorView& tensor, Heads heads);
  SequenceProduct& TransposedA(const ConstTensorView& tensor, Heads heads);
  SequenceProduct& B(const ConstTensorView& tensor, Heads heads);
  SequenceProduct& TransposedB(const ConstTensorView& tensor, Heads heads);
  // C += instead: C is f32.
  SequenceProduct& C(const TensorView& tensor, Heads heads,
                     bool accumulate = false);
  SequenceProduct& Scale(float scale);

  const Product& product() const { return product_; }

 private:
  template <class Void>
  Void* Place(const BasicTensorView<Void>& tensor, Heads heads,
              int64_t Repeat::*stride);

  const Problem& problem_;
  const Sequences sequences_;
  Product product_;
};

// How results of a K/V head are summed up over its q heads: by one product if
// the heads lie so that it can do it all and the inputs are not f32, or always
// by one for each. Whether heads lie so is a matter of the whole batch.
enum class HeadSums { kTogether, kApart };

// The products that add up to one, whose C is of a K/V head while A, which is
// transposed, and B are of its q heads. All but the first accumulate.
std::vector<Product> SumOverHeads(Product product, HeadSums sums);
// Whether it is one for all sequences, if A is a matrix of ours.
bool SumsAtOnce(const Problem& problem, const ConstTensorView& b,
                HeadSums sums);

// Our own matrices as tensors: [batch, heads, tokens], `pitch` elements each.
template <class Void>
BasicTensorView<Void> AsTensor(Void* data, DType dtype, int64_t heads,
                               int64_t tokens, int64_t pitch) {
  return {data, dtype, heads * tokens * pitch, pitch, tokens * pitch};
}

// The same from a column on.
template <class Void>
BasicTensorView<Void> FromColumn(BasicTensorView<Void> matrix, int64_t column) {
  matrix.data = Advance(matrix.data, matrix.dtype, column);
  return matrix;
}

// Where products are to add up a result.
inline TensorView WhereSummed(const UnfinishedTokens& x) {
  if (x.sums == nullptr) return x.to;
  return AsTensor<void>(x.sums, DType::kF32, x.heads, x.tokens, x.dim);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_SEQUENCE_PRODUCT_H_
