#include "tests/bench/random_attention.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/dtype.h"

namespace attnd::bench {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

double AttentionShape::flops(Op op) const {
  const double pairs = static_cast<double>(q_len) * kv_len;
  const double forward = 4 * pairs * q_heads * dim * (causal ? .5 : 1);
  return op == Op::kForward ? forward : 2.5 * forward;
}

double AttentionShape::kv_bytes() const {
  return 2.0 * kv_len * kv_heads * dim * SizeOf(dtype);
}

AttentionShape SelfAttention(int64_t len, int64_t heads, int64_t dim,
                             DType dtype, bool causal) {
  return {len, len, heads, heads, dim, dtype, causal};
}

RandomAttention::RandomAttention(const AttentionShape& shape)
    : shape_(shape), lse_(shape.q_len * shape.q_heads) {
  for (Memory* t : {&q_, &d_o_, &o_, &dq_})
    *t = Zeros(shape.q_len, shape.q_heads);
  for (Memory* t : {&k_, &v_, &dk_, &dv_})
    *t = Zeros(shape.kv_len, shape.kv_heads);
  for (Memory* t : {&q_, &k_, &v_, &d_o_}) Randomize(*t);
  Problem& p = forward_.problem;
  p.batch = 1;
  p.q_len = shape.q_len;
  p.q_heads = shape.q_heads;
  p.kv_heads = shape.kv_heads;
  p.head_dim = p.value_dim = shape.dim;
  p.scale = 1 / std::sqrt(static_cast<float>(shape.dim));
  p.mask.causal = shape.causal;
  p.q = View<const void>(q_, shape.q_heads);
  p.cancel = &cancel;
  segment_.k = View<const void>(k_, shape.kv_heads);
  segment_.v = View<const void>(v_, shape.kv_heads);
  segment_.dk = View<void>(dk_, shape.kv_heads);
  segment_.dv = View<void>(dv_, shape.kv_heads);
  segment_.len = shape.kv_len;
  p.kv = {&segment_, 1};
  forward_.o = View<void>(o_, shape.q_heads);
  forward_.lse = {lse_.data(), 0, shape.q_len};
  backward_.problem = p;
  backward_.d_o = View<const void>(d_o_, shape.q_heads);
  backward_.o = View<const void>(o_, shape.q_heads);
  backward_.lse = {lse_.data(), 0, shape.q_len};
  backward_.dq = View<void>(dq_, shape.q_heads);
}

void RandomAttention::Run(Op op, Stream& stream, const GroupOptions& options) {
  Require(op == Op::kForward ? stream.Forward({&forward_, 1}, options)
                             : stream.Backward({&backward_, 1}, options));
  Require(stream.Proceed([] { return false; }).status());
}

RandomAttention::Memory RandomAttention::Zeros(int64_t len,
                                               int64_t heads) const {
  return Memory(len * heads * shape_.dim * SizeOf(shape_.dtype));
}

void RandomAttention::Randomize(Memory& memory) {
  const int64_t elements = memory.size() / SizeOf(shape_.dtype);
  for (int64_t i = 0; i < elements; ++i) {
    StoreElement(memory.data(), shape_.dtype, i, normal_(random_));
  }
}

}  // namespace attnd::bench
