#include "kernels/team/host_tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace attnd {
namespace {

template <typename Void>
Place Of(const BasicTensorView<Void>& view, int64_t b) {
  auto* data = static_cast<std::byte*>(
      const_cast<void*>(static_cast<const void*>(view.data)));
  return {data + b * view.batch_stride * SizeOf(view.dtype), view.dtype,
          view.token_stride, view.head_stride};
}

template <typename Float>
Place Of(const BasicRowView<Float>& view, int64_t b) {
  auto* data = const_cast<float*>(view.data) + b * view.batch_stride;
  return {reinterpret_cast<std::byte*>(data), DType::kF32, 1, view.head_stride};
}

Place Of(const BiasView& view, int64_t b) {
  auto* data = static_cast<std::byte*>(const_cast<void*>(view.data));
  return {data + b * view.batch_stride * SizeOf(view.dtype), view.dtype,
          view.row_stride, view.head_stride, /*has_all_columns=*/true};
}

Place InputOf(const Problem& p, int64_t b, TensorId id) {
  if (id == TensorId::kQ) return Of(p.q, b);
  if (id == TensorId::kBias) return Of(p.bias, b);
  if (p.kv.empty()) return {};
  return Of(id == TensorId::kK ? p.kv.front().k : p.kv.front().v, b);
}

void FillTokens(const TensorView& view, int64_t b, int64_t first, int64_t end,
                int64_t heads, int64_t dim) {
  if (!view) return;
  const Place place = Of(view, b);
  for (int64_t token = first; token < end; ++token) {
    for (int64_t head = 0; head < heads; ++head) {
      std::memset(place.At(token, head), 0, dim * SizeOf(view.dtype));
    }
  }
}

void FillRows(const RowView& view, int64_t b, int64_t first, int64_t end,
              int64_t heads) {
  if (!view) return;
  for (int64_t head = 0; head < heads; ++head) {
    float* row = view.data + b * view.batch_stride + head * view.head_stride;
    std::fill(row + first, row + end, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

Place PlaceOf(const Group& group, const plan::SequenceShape& sequence,
              TensorId id) {
  const Problem& p = group.problem(sequence.problem);
  const int64_t b = sequence.b;
  if (id <= TensorId::kBias) return InputOf(p, b, id);
  if (!group.forward.empty()) {
    const ForwardArgs& args = group.forward[sequence.problem];
    return id == TensorId::kO ? Of(args.o, b) : Of(args.lse, b);
  }
  const BackwardArgs& args = group.backward[sequence.problem];
  switch (id) {
    case TensorId::kO:
      return Of(args.o, b);
    case TensorId::kLse:
      return Of(args.lse, b);
    case TensorId::kDO:
      return Of(args.d_o, b);
    case TensorId::kDelta:
      return Of(args.delta, b);
    case TensorId::kDLse:
      return Of(args.d_lse, b);
    case TensorId::kDQ:
      return Of(args.dq, b);
    case TensorId::kDK:
      return Of(p.kv.front().dk, b);
    default:
      return Of(p.kv.front().dv, b);
  }
}

void FillPadding(const Group& group) {
  for (const ForwardArgs& args : group.forward) {
    const Problem& p = args.problem;
    for (int64_t b = 0; b < p.batch; ++b) {
      FillTokens(args.o, b, QLen(p, b), p.q_len, p.q_heads, p.value_dim);
      FillRows(args.lse, b, QLen(p, b), p.q_len, p.q_heads);
    }
  }
  for (const BackwardArgs& args : group.backward) {
    const Problem& p = args.problem;
    for (int64_t b = 0; b < p.batch; ++b) {
      FillTokens(args.dq, b, QLen(p, b), p.q_len, p.q_heads, p.head_dim);
      for (const KvSegment& s : p.kv) {
        FillTokens(s.dk, b, KvLen(s, b), s.len, p.kv_heads, p.head_dim);
        FillTokens(s.dv, b, KvLen(s, b), s.len, p.kv_heads, p.value_dim);
      }
    }
  }
}

bool IsCancelled(const Group& group) {
  for (size_t i = 0; i < group.size(); ++i) {
    const CancelToken* cancel = group.problem(i).cancel;
    if (cancel == nullptr || !cancel->cancelled()) return false;
  }
  return group.size() > 0;
}

}  // namespace attnd
