#include "kernels/cuda/capi/capi_problem.h"

#include "absl/strings/string_view.h"

namespace attnd::cuda {
namespace {

absl::Status Refuse(absl::string_view why) {
  return absl::InvalidArgumentError(why);
}

// A view of either kind.
template <class View>
View MakeView(const AttndTensor& t, DType dtype) {
  return {t.data, dtype, t.batch_stride, t.token_stride, t.head_stride};
}

Problem MakeProblem(const AttndForwardProblem& from, const KvSegment& segment) {
  Problem p;
  p.batch = from.batch;
  p.q_len = from.q_len;
  p.q_heads = from.q_heads;
  p.kv_heads = from.kv_heads;
  p.head_dim = from.head_dim;
  p.value_dim = from.value_dim;
  p.q = MakeView<ConstTensorView>(from.q, static_cast<DType>(from.dtype));
  p.kv = {&segment, 1};
  p.mask = {.causal = from.causal != 0, .left = from.left, .right = from.right};
  p.scale = from.scale;
  return p;
}

}  // namespace

absl::Status Check(const AttndForwardProblem& p) {
  if (p.batch < 0 || p.q_len < 0 || p.kv_len < 0) return Refuse("a length < 0");
  if (p.kv_heads < 1 || p.q_heads < 1 || p.q_heads % p.kv_heads != 0) {
    return Refuse("q_heads must be a multiple of kv_heads");
  }
  for (int64_t dim : {p.head_dim, p.value_dim}) {
    if (dim < 1 || dim > kMaxHeadDim) return Refuse("dim out of range");
  }
  if (p.left < -1 || p.right < -1) return Refuse("window < -1");
  if (p.dtype < ATTND_F32 || p.dtype > ATTND_BF16) return Refuse("dtype");
  for (const AttndTensor& t : {p.q, p.k, p.v, p.o}) {
    if (t.data == nullptr) return Refuse("a tensor is NULL");
  }
  return absl::OkStatus();
}

absl::Status Check(const AttndBackwardProblem& p) {
  if (absl::Status s = Check(p.forward); !s.ok()) return s;
  if (p.forward.lse == nullptr) return Refuse("backward needs LSE");
  if (p.d_o.data == nullptr) return Refuse("the gradient of O is NULL");
  return absl::OkStatus();
}

KvSegment MakeSegment(const AttndForwardProblem& from) {
  const DType dtype = static_cast<DType>(from.dtype);
  KvSegment segment;
  segment.k = MakeView<ConstTensorView>(from.k, dtype);
  segment.v = MakeView<ConstTensorView>(from.v, dtype);
  segment.len = from.kv_len;
  return segment;
}

KvSegment MakeSegment(const AttndBackwardProblem& from) {
  KvSegment segment = MakeSegment(from.forward);
  segment.dk = MakeView<TensorView>(from.dk, segment.k.dtype);
  segment.dv = MakeView<TensorView>(from.dv, segment.v.dtype);
  return segment;
}

ForwardArgs MakeArgs(const AttndForwardProblem& from,
                     const KvSegment& segment) {
  ForwardArgs args;
  args.problem = MakeProblem(from, segment);
  args.o = MakeView<TensorView>(from.o, args.problem.dtype());
  args.lse = {from.lse, from.q_heads * from.q_len, from.q_len};
  return args;
}

BackwardArgs MakeArgs(const AttndBackwardProblem& from,
                      const KvSegment& segment) {
  const AttndForwardProblem& forward = from.forward;
  BackwardArgs args;
  args.problem = MakeProblem(forward, segment);
  const DType dtype = args.problem.dtype();
  args.d_o = MakeView<ConstTensorView>(from.d_o, dtype);
  args.o = MakeView<ConstTensorView>(forward.o, dtype);
  args.lse = {forward.lse, forward.q_heads * forward.q_len, forward.q_len};
  args.dq = MakeView<TensorView>(from.dq, dtype);
  return args;
}

}  // namespace attnd::cuda
