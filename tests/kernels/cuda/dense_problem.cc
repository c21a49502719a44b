#include "tests/kernels/cuda/dense_problem.h"

#include <cmath>
#include <random>
#include <utility>

namespace attnd::testing {
namespace {

OwnedTensor Normal(std::mt19937& random, const DenseShape& s, int64_t tokens,
                   int64_t heads) {
  std::normal_distribution<double> normal;
  OwnedTensor t(s.dtype, s.batch, tokens, heads, s.dim);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < s.dim; ++d) t.Set(b, i, h, d, normal(random));
  return t;
}

}  // namespace

DenseProblem::DenseProblem(uint32_t seed, const DenseShape& s)
    : o(s.dtype, s.batch, s.q_len, s.q_heads, s.dim),
      lse(s.batch, s.q_heads, s.q_len) {
  std::mt19937 random(seed);
  q = Normal(random, s, s.q_len, s.q_heads);
  k = Normal(random, s, s.kv_len, s.kv_heads);
  v = Normal(random, s, s.kv_len, s.kv_heads);
  segment_.k = std::as_const(k).view();
  segment_.v = std::as_const(v).view();
  segment_.len = s.kv_len;
  Problem& p = args.problem;
  p.batch = s.batch;
  p.q_len = s.q_len;
  p.q_heads = s.q_heads;
  p.kv_heads = s.kv_heads;
  p.head_dim = p.value_dim = s.dim;
  p.q = std::as_const(q).view();
  p.kv = {&segment_, 1};
  p.mask = s.mask;
  p.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  args.o = o.view();
  args.lse = lse.view();
}

void DenseProblem::AddBias() {
  const Problem& p = args.problem;
  bias = OwnedTensor(DType::kF32, 1, p.q_len, 1, segment_.len, true);
  for (int64_t i = 0; i < p.q_len; ++i)
    for (int64_t j = 0; j < segment_.len; ++j) bias.Set(0, i, 0, j, 0);
  const ConstTensorView view = std::as_const(bias).view();
  args.problem.bias = {view.data, view.dtype, 0, 0, view.token_stride};
}

}  // namespace attnd::testing
