#include "kernels/cuda/launch/pack.h"

#include "absl/container/inlined_vector.h"
#include "kernels/cuda/launch/unit_strides.h"
#include "kernels/mask.h"

namespace attnd::cuda {
namespace {

DeviceSegment MakeSegment(const KvSegment& s, Blob& blob) {
  DeviceSegment segment;
  segment.k = s.k;
  segment.v = s.v;
  segment.len = s.len;
  segment.start = s.positions.start;
  segment.stride = s.positions.stride;
  segment.lens = blob.Append(s.lens);
  segment.starts = blob.Append(s.positions.starts);
  return segment;
}

}  // namespace

BlobOffset Blob::Append(const ForwardArgs& args) {
  const UnitStrides unit(args.problem);
  const Problem& p = unit.problem();
  const Mask mask = Resolve(p.mask);
  DeviceProblem d;
  d.q = p.q;
  d.o = args.o;
  d.lse = args.lse;
  d.bias = p.bias;
  d.batch = p.batch;
  d.q_len = p.q_len;
  d.q_start = p.q_start.value_or(0);
  d.has_q_start = p.q_start.has_value();
  d.q_stride = p.q_stride;
  d.left = mask.left;
  d.right = mask.right;
  d.q_heads = p.q_heads;
  d.kv_heads = p.kv_heads;
  d.group = p.group();
  d.head_dim = static_cast<int32_t>(p.head_dim);
  d.value_dim = static_cast<int32_t>(p.value_dim);
  d.scale = p.scale;
  d.softcap = p.softcap.value_or(0.0f);
  d.q_lens = Append(p.q_lens);
  d.q_starts = Append(p.q_starts);
  if (args.before.lse) {
    const DeviceState before{args.before.o, args.before.lse};
    d.before = Append(absl::MakeConstSpan(&before, 1));
  }
  absl::InlinedVector<DeviceSegment, 2> segments;
  int64_t bias_column = 0;
  for (const KvSegment& s : p.kv) {
    segments.push_back(MakeSegment(s, *this));
    segments.back().bias_column = bias_column;
    bias_column += s.len;
  }
  d.num_segments = static_cast<int32_t>(segments.size());
  d.segments = Append(absl::MakeConstSpan(segments));
  return Append(absl::MakeConstSpan(&d, 1));
}

BlobOffset Blob::Append(const BackwardArgs& args, DeviceGradients gradients) {
  gradients.d_o = args.d_o;
  gradients.o = args.o;
  gradients.lse = args.lse;
  gradients.delta = args.delta;
  gradients.d_lse = args.d_lse;
  gradients.dq = args.dq;
  if (args.dq) gradients.dq_before = args.dq_before;
  absl::InlinedVector<DeviceSegmentGradients, 2> segments;
  for (const KvSegment& s : args.problem.kv) {
    DeviceSegmentGradients& to = segments.emplace_back();
    to.dk = s.dk;
    to.dv = s.dv;
    if (s.dk) to.dk_before = s.dk_before;
    if (s.dv) to.dv_before = s.dv_before;
  }
  gradients.segments = Append(absl::MakeConstSpan(segments));
  return Append(absl::MakeConstSpan(&gradients, 1));
}

DeviceProblem Blob::problem(BlobOffset offset) const {
  DeviceProblem problem;
  std::memcpy(&problem, bytes_.data() + offset, sizeof(problem));
  return problem;
}

}  // namespace attnd::cuda
