#include "tests/bench/self_attention.h"

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

SelfAttention::SelfAttention(int64_t len, int64_t heads, int64_t dim,
                             DType dtype, bool causal)
    : len_(len), heads_(heads), dim_(dim), dtype_(dtype), lse_(len * heads) {
  for (Bytes* t : {&q_, &k_, &v_, &d_o_}) *t = Random();
  for (Bytes* t : {&o_, &dq_, &dk_, &dv_}) {
    t->resize(len * heads * dim * SizeOf(dtype));
  }
  Problem& p = forward_.problem;
  p.batch = 1;
  p.q_len = len;
  p.q_heads = p.kv_heads = heads;
  p.head_dim = p.value_dim = dim;
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  p.mask.causal = causal;
  p.q = View<const void>(q_);
  p.cancel = &cancel;
  segment_.k = View<const void>(k_);
  segment_.v = View<const void>(v_);
  segment_.dk = View<void>(dk_);
  segment_.dv = View<void>(dv_);
  segment_.len = len;
  p.kv = {&segment_, 1};
  forward_.o = View<void>(o_);
  forward_.lse = {lse_.data(), 0, len};
  backward_.problem = p;
  backward_.d_o = View<const void>(d_o_);
  backward_.o = View<const void>(o_);
  backward_.lse = {lse_.data(), 0, len};
  backward_.dq = View<void>(dq_);
}

void SelfAttention::Run(Op op, Stream& stream, const GroupOptions& options) {
  Require(op == Op::kForward ? stream.Forward({&forward_, 1}, options)
                             : stream.Backward({&backward_, 1}, options));
}

double SelfAttention::flops(Op op) const {
  const double pairs = static_cast<double>(len_) * len_;
  const double forward =
      4 * pairs * heads_ * dim_ * (problem().mask.causal ? .5 : 1);
  return op == Op::kForward ? forward : 2.5 * forward;
}

SelfAttention::Bytes SelfAttention::Random() {
  Bytes bytes(len_ * heads_ * dim_ * SizeOf(dtype_));
  for (int64_t i = 0; i < len_ * heads_ * dim_; ++i) {
    StoreElement(bytes.data(), dtype_, i, normal_(random_));
  }
  return bytes;
}

}  // namespace attnd::bench
