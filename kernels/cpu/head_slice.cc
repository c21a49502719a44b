#include "kernels/cpu/head_slice.h"

#include "kernels/cpu/tile.h"

namespace attnd::cpu {
namespace {

template <typename Void>
BasicTensorView<Void> From(BasicTensorView<Void> view, int64_t b,
                           int64_t head) {
  if (view) view.data = RowAt(view, b, 0, head);
  return view;
}

template <typename Float>
BasicRowView<Float> From(BasicRowView<Float> view, int64_t b, int64_t head) {
  if (view) view.data = RowAt(view, b, head);
  return view;
}

absl::Span<const int64_t> Only(absl::Span<const int64_t> values, int64_t b) {
  return values.empty() ? values : values.subspan(b, 1);
}

}  // namespace

Problem HeadSlice::Slice(const Problem& problem, int64_t b, int64_t q_head,
                         int64_t q_heads, int64_t kv_head) {
  Problem p = problem;
  p.batch = 1;
  p.q_heads = q_heads;
  p.kv_heads = 1;
  p.q = From(p.q, b, q_head);
  p.q_lens = Only(p.q_lens, b);
  p.q_starts = Only(p.q_starts, b);
  if (p.bias) {
    p.bias.data = static_cast<const std::byte*>(p.bias.data) +
                  SizeOf(p.bias.dtype) *
                      (b * p.bias.batch_stride + q_head * p.bias.head_stride);
  }
  segments_.assign(problem.kv.begin(), problem.kv.end());
  for (KvSegment& s : segments_) {
    s.k = From(s.k, b, kv_head);
    s.v = From(s.v, b, kv_head);
    s.dk = From(s.dk, b, kv_head);
    s.dv = From(s.dv, b, kv_head);
    s.dk_before = From(s.dk_before, b, kv_head);
    s.dv_before = From(s.dv_before, b, kv_head);
    s.lens = Only(s.lens, b);
    s.positions.starts = Only(s.positions.starts, b);
  }
  p.kv = segments_;
  return p;
}

HeadSlice::HeadSlice(const ForwardArgs& args, int64_t b, int64_t q_head) {
  forward_.problem =
      Slice(args.problem, b, q_head, 1, q_head / args.problem.group());
  forward_.o = From(args.o, b, q_head);
  forward_.lse = From(args.lse, b, q_head);
  forward_.before.o = From(args.before.o, b, q_head);
  forward_.before.lse = From(args.before.lse, b, q_head);
}

HeadSlice::HeadSlice(const BackwardArgs& args, int64_t b, int64_t kv_head) {
  const int64_t group = args.problem.group();
  const int64_t q_head = kv_head * group;
  backward_.problem = Slice(args.problem, b, q_head, group, kv_head);
  backward_.d_o = From(args.d_o, b, q_head);
  backward_.lse = From(args.lse, b, q_head);
  backward_.o = From(args.o, b, q_head);
  backward_.delta = From(args.delta, b, q_head);
  backward_.d_lse = From(args.d_lse, b, q_head);
  backward_.dq = From(args.dq, b, q_head);
  backward_.dq_before = From(args.dq_before, b, q_head);
}

}  // namespace attnd::cpu
