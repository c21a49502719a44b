// From a valid request and memory to problems: views, strides and offsets.

#include <cmath>
#include <type_traits>

#include "kernels/request.h"

namespace attnd {
namespace {

// Element strides of a contiguous tensor. A tensor without elements has none:
// their products might not fit.
template <typename View, typename Byte>
View MakeView(Byte* data, const Request::Tensor& tensor, Layout layout) {
  View view;
  view.dtype = tensor.spec.dtype;
  if (!tensor.present) return view;
  view.data = data;
  if (tensor.bytes == 0) return view;
  const auto& shape = tensor.spec.shape;
  switch (layout) {
    case Layout::kBshd:
      view.head_stride = shape[3];
      view.token_stride = shape[2] * view.head_stride;
      view.batch_stride = shape[1] * view.token_stride;
      break;
    case Layout::kBhsd:
      view.token_stride = shape[3];
      view.head_stride = shape[2] * view.token_stride;
      view.batch_stride = shape[1] * view.head_stride;
      break;
    case Layout::kPacked:
      view.head_stride = shape[2];
      view.token_stride = shape[1] * view.head_stride;
      break;
  }
  return view;
}

template <typename View, typename Byte>
View MakeRows(Byte* data, const Request::Tensor& tensor) {
  View view;
  if (!tensor.present) return view;
  view.data = reinterpret_cast<decltype(view.data)>(data);
  if (tensor.bytes == 0) return view;
  const auto& shape = tensor.spec.shape;
  view.head_stride = shape.back();
  if (shape.size() == 3) view.batch_stride = shape[1] * shape[2];
  return view;
}

BiasView MakeBias(const std::byte* data, const Request::Tensor& tensor) {
  BiasView view;
  view.dtype = tensor.spec.dtype;
  if (!tensor.present) return view;
  view.data = data;
  if (tensor.bytes == 0) return view;
  const auto& shape = tensor.spec.shape;
  view.row_stride = shape[3];
  view.head_stride = shape[1] == 1 ? 0 : shape[2] * shape[3];
  view.batch_stride = shape[0] == 1 ? 0 : shape[1] * shape[2] * shape[3];
  return view;
}

// The view from token `token` on.
template <typename Void>
void AdvanceTokens(BasicTensorView<Void>& view, int64_t token) {
  if (view.data == nullptr) return;
  using Byte =
      std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  view.data = static_cast<Byte*>(view.data) +
              token * view.token_stride * SizeOf(view.dtype);
}

template <typename Float>
void AdvanceRows(BasicRowView<Float>& view, int64_t row) {
  if (view.data != nullptr) view.data += row;
}

// What a piece of a request is cut from: everything but lengths and starts.
struct Pattern {
  KvSegment segment;
  Problem problem;
  ForwardArgs forward;
  BackwardArgs backward;
};

// Sets the starts of sequences [b, b + problem.batch).
void SetStarts(const RequestSpec& spec, int64_t b, Problem& problem,
               Positions& kv) {
  if (spec.q_start.size() == 1)
    problem.q_start = spec.q_start[0];
  else if (!spec.q_start.empty())
    problem.q_starts =
        absl::MakeConstSpan(spec.q_start).subspan(b, problem.batch);
  if (spec.kv_start.size() == 1)
    kv.start = spec.kv_start[0];
  else if (!spec.kv_start.empty())
    kv.starts = absl::MakeConstSpan(spec.kv_start).subspan(b, problem.batch);
}

void Append(const Pattern& piece, Op op, BoundRequest& bound) {
  bound.segments.push_back(piece.segment);
  const absl::Span<const KvSegment> kv(&bound.segments.back(), 1);
  if (op == Op::kForward) {
    bound.forward.push_back(piece.forward);
    bound.forward.back().problem = piece.problem;
    bound.forward.back().problem.kv = kv;
  } else {
    bound.backward.push_back(piece.backward);
    bound.backward.back().problem = piece.problem;
    bound.backward.back().problem.kv = kv;
  }
}

// The sequence whose first tokens are `q_token` and `kv_token`.
Pattern CutSequence(const Pattern& whole, int64_t b, int64_t q_token,
                    int64_t kv_token) {
  Pattern piece = whole;
  AdvanceTokens(piece.problem.q, q_token);
  AdvanceTokens(piece.segment.k, kv_token);
  AdvanceTokens(piece.segment.v, kv_token);
  AdvanceTokens(piece.segment.dk, kv_token);
  AdvanceTokens(piece.segment.dv, kv_token);
  AdvanceTokens(piece.forward.o, q_token);
  AdvanceRows(piece.forward.lse, q_token);
  AdvanceTokens(piece.backward.d_o, q_token);
  AdvanceTokens(piece.backward.o, q_token);
  AdvanceTokens(piece.backward.dq, q_token);
  AdvanceRows(piece.backward.lse, q_token);
  AdvanceRows(piece.backward.delta, q_token);
  AdvanceRows(piece.backward.d_lse, q_token);
  if (BiasView& bias = piece.problem.bias) {
    bias.data = static_cast<const std::byte*>(bias.data) +
                b * bias.batch_stride * SizeOf(bias.dtype);
    bias.batch_stride = 0;
  }
  return piece;
}

}  // namespace

std::unique_ptr<BoundRequest> Request::Bind(const TensorPointers& memory,
                                            const CancelToken* cancel) const {
  const auto tensor = [&](TensorId id) {
    return MakeView<ConstTensorView>(memory[id], inputs_[id], spec_.layout);
  };
  const auto output = [&](TensorId id) {
    return MakeView<TensorView>(memory[id], outputs_[id], spec_.layout);
  };
  const auto rows = [&](TensorId id) {
    return MakeRows<ConstRowView>(memory[id], inputs_[id]);
  };

  Pattern whole;
  whole.segment.k = tensor(TensorId::kK);
  whole.segment.v = tensor(TensorId::kV);
  whole.segment.dk = output(TensorId::kDK);
  whole.segment.dv = output(TensorId::kDV);
  whole.segment.positions.stride = spec_.kv_stride;
  whole.problem.q_heads = sizes_.q_heads;
  whole.problem.kv_heads = sizes_.kv_heads;
  whole.problem.head_dim = sizes_.head_dim;
  whole.problem.value_dim = sizes_.value_dim;
  whole.problem.q = tensor(TensorId::kQ);
  whole.problem.bias =
      MakeBias(memory[TensorId::kBias], inputs_[TensorId::kBias]);
  whole.problem.q_stride = spec_.q_stride;
  whole.problem.mask = spec_.mask;
  whole.problem.scale = spec_.scale.value_or(
      1.0f / std::sqrt(static_cast<float>(sizes_.head_dim)));
  whole.problem.softcap = spec_.softcap;
  whole.problem.cancel = cancel;
  whole.forward.o = output(TensorId::kO);
  whole.forward.lse =
      MakeRows<RowView>(memory[TensorId::kLse], outputs_[TensorId::kLse]);
  whole.backward.d_o = tensor(TensorId::kDO);
  whole.backward.lse = rows(TensorId::kLse);
  whole.backward.o = tensor(TensorId::kO);
  whole.backward.delta = rows(TensorId::kDelta);
  whole.backward.d_lse = rows(TensorId::kDLse);
  whole.backward.dq = output(TensorId::kDQ);

  auto bound = std::make_unique<BoundRequest>();
  if (spec_.layout == Layout::kPacked) {
    bound->segments.reserve(sizes_.batch);  // their addresses must not change
    int64_t q_token = 0, kv_token = 0;
    for (int64_t b = 0; b < sizes_.batch; ++b) {
      Pattern piece = CutSequence(whole, b, q_token, kv_token);
      piece.problem.batch = 1;
      piece.problem.q_len = spec_.q_lens[b];
      piece.segment.len = spec_.kv_lens[b];
      SetStarts(spec_, b, piece.problem, piece.segment.positions);
      Append(piece, spec_.op, *bound);
      q_token += piece.problem.q_len;
      kv_token += piece.segment.len;
    }
    return bound;
  }
  // Where there is nothing to write, even 2^31 sequences are nothing to do.
  whole.problem.batch = output_bytes_ == 0 ? 0 : sizes_.batch;
  whole.problem.q_len = sizes_.q_len;
  whole.problem.q_lens = spec_.q_lens;
  whole.segment.len = sizes_.kv_len;
  whole.segment.lens = spec_.kv_lens;
  SetStarts(spec_, 0, whole.problem, whole.segment.positions);
  bound->segments.reserve(1);
  Append(whole, spec_.op, *bound);
  return bound;
}

}  // namespace attnd
