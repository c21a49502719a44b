#include "kernels/team/plan_tensors.h"

#include <optional>

#include "kernels/plan/plan_builder.h"

namespace attnd {
namespace {

using plan::Slice;

TensorView ViewOf(const Place& place, const plan::Run& tokens, int64_t head) {
  return {place.At(tokens.first, head), place.dtype, 0, place.StrideOf(tokens),
          place.head_stride};
}

ConstTensorView Const(const TensorView& view) {
  return {view.data, view.dtype, view.batch_stride, view.token_stride,
          view.head_stride};
}

ConstRowView Const(const RowView& rows) {
  return {rows.data, rows.batch_stride, rows.head_stride};
}

RowView FloatsAt(const Place& place, int64_t token, int64_t head) {
  return {reinterpret_cast<float*>(place.At(token, head)), 0,
          place.head_stride};
}

bool IsRowFloats(TensorId id) {
  return id == TensorId::kLse || id == TensorId::kDelta ||
         id == TensorId::kDLse;
}

int64_t Columns(const Slice& slice) {
  int64_t columns = 0;
  for (const plan::Run& run : slice.columns) columns += run.count;
  return columns;
}

// One copy where rows lie without gaps.
BlockCopy Merged(BlockCopy copy) {
  if (copy.rows > 1 && copy.from_pitch == copy.row_bytes &&
      copy.to_pitch == copy.row_bytes) {
    copy.row_bytes *= copy.rows;
    copy.rows = 1;
  }
  return copy;
}

// Whether a tensor has a head's tokens side by side in the host's memory, and
// so in all of its buffers: one of a single token does not show it.
bool IsByHeads(const Place& host) {
  return host.head_stride > host.token_stride;
}

}  // namespace

Place PlanTensors::Buffer(int index) const {
  const plan::Buffer& buffer = plan_.buffers[index];
  const Slice& slice = buffer.slice;
  const Place host = Host(index);
  const plan::ProblemShape& shape = request_.ProblemOf(slice.sequence);
  const int64_t elements = buffer.tensor == TensorId::kBias
                               ? Columns(slice)
                               : TokenElements(shape, buffer.tensor);
  Place place{memory_[index], buffer.dtype};
  // As the host's memory lies, so that copies are long; LSE and its kin are
  // wanted so.
  if (IsRowFloats(buffer.tensor) || IsByHeads(host)) {
    place.token_stride = elements;
    place.head_stride = slice.tokens.count * elements;
  } else {
    place.head_stride = elements;
    place.token_stride = slice.heads * elements;
  }
  place.first_token = slice.tokens.first;
  place.token_step = slice.tokens.step;
  place.data = place.At(slice.tokens.first, -slice.head);
  return place;
}

Place PlanTensors::Host(int index) const {
  const plan::Buffer& b = plan_.buffers[index];
  return PlaceOf(group_, request_.sequences[b.slice.sequence], b.tensor);
}

void PlanTensors::AddBiasCopies(const Slice& slice, const Place& from,
                                const Place& to,
                                std::vector<BlockCopy>& copies) {
  const int64_t size = SizeOf(to.dtype);
  const plan::Run& tokens = slice.tokens;
  int64_t column = 0;
  for (const plan::Run& run : slice.columns) {
    const int64_t from_column = from.has_all_columns ? run.first : column;
    const int64_t to_column = to.has_all_columns ? run.first : column;
    const auto add = [&](int64_t token, int64_t h, BlockCopy copy) {
      copy.from = from.At(token, h) + from_column * size;
      copy.to = to.At(token, h) + to_column * size;
      copies.push_back(Merged(copy));
    };
    for (int64_t h = slice.head; h < slice.head + slice.heads; ++h) {
      if (run.step == 1) {
        add(tokens.first, h,
            {nullptr, nullptr, run.count * size, tokens.count,
             from.StrideOf(tokens) * size, to.StrideOf(tokens) * size});
        continue;
      }
      // A row's columns lie apart: one by one.
      const int64_t from_step = from.has_all_columns ? run.step : 1;
      const int64_t to_step = to.has_all_columns ? run.step : 1;
      for (int64_t i = 0; i < tokens.count; ++i) {
        add(tokens.first + i * tokens.step, h,
            {nullptr, nullptr, size, run.count, from_step * size,
             to_step * size});
      }
    }
    column += run.count;
  }
}

void PlanTensors::AddCopies(int buffer, const Slice& slice, const Place& from,
                            const Place& to,
                            std::vector<BlockCopy>& copies) const {
  if (slice.tokens.empty() || slice.heads <= 0) return;
  const plan::Buffer& b = plan_.buffers[buffer];
  if (b.tensor == TensorId::kBias) {
    AddBiasCopies(slice, from, to, copies);
    return;
  }
  const int64_t size = SizeOf(b.dtype);
  const int64_t tokens = slice.tokens.count, token = slice.tokens.first;
  const int64_t from_stride = from.StrideOf(slice.tokens);
  const int64_t to_stride = to.StrideOf(slice.tokens);
  const int64_t elements =
      TokenElements(request_.ProblemOf(slice.sequence), b.tensor);
  const auto side_by_side = [](int64_t a, int64_t b, int64_t stride) {
    return a == stride && b == stride;
  };
  if (slice.heads == 1 ||
      side_by_side(from.head_stride, to.head_stride, elements)) {
    copies.push_back(
        Merged({from.At(token, slice.head), to.At(token, slice.head),
                slice.heads * elements * size, tokens, from_stride * size,
                to_stride * size}));
    return;
  }
  if (side_by_side(from_stride, to_stride, elements)) {
    copies.push_back(
        Merged({from.At(token, slice.head), to.At(token, slice.head),
                tokens * elements * size, slice.heads, from.head_stride * size,
                to.head_stride * size}));
    return;
  }
  for (int64_t h = slice.head; h < slice.head + slice.heads; ++h) {
    copies.push_back(
        Merged({from.At(token, h), to.At(token, h), elements * size, tokens,
                from_stride * size, to_stride * size}));
  }
}

RowDots PlanTensors::Dots(const plan::Dot& dot) const {
  const Slice& slice = dot.slice;
  RowDots dots;
  dots.a = Const(ViewOf(Buffer(dot.d_o), slice.tokens, slice.head));
  dots.b = Const(ViewOf(Buffer(dot.o), slice.tokens, slice.head));
  dots.to = FloatsAt(Buffer(dot.delta), slice.tokens.first, slice.head);
  dots.rows = slice.tokens.count;
  dots.heads = slice.heads;
  dots.dim = request_.ProblemOf(slice.sequence).value_dim;
  return dots;
}

BlockSum PlanTensors::SumWithoutTerms(const plan::Sum& sum) const {
  const Place to = Buffer(sum.to);
  const int64_t tokens = sum.slice.tokens.count, heads = sum.slice.heads;
  const int64_t elements = TokenElements(request_.ProblemOf(sum.slice.sequence),
                                         plan_.buffers[sum.to].tensor);
  const bool by_heads = IsByHeads(Host(sum.to));
  BlockSum block;
  block.to = to.At(sum.slice.tokens.first, sum.slice.head);
  block.dtype = to.dtype;
  block.to_pitch = by_heads ? to.head_stride : to.token_stride;
  block.row_elements = (by_heads ? tokens : heads) * elements;
  block.rows = by_heads ? heads : tokens;
  return block;
}

BlockSum::Term PlanTensors::TermOf(const plan::Sum& sum, int buffer) const {
  const Place term = Buffer(buffer);
  return {reinterpret_cast<const float*>(
              term.At(sum.slice.tokens.first, sum.slice.head)),
          IsByHeads(Host(sum.to)) ? term.head_stride : term.token_stride};
}

RowMerges PlanTensors::MergeWithoutTerms(const plan::Merge& merge) const {
  const Slice& slice = merge.slice;
  RowMerges merges;
  if (merge.o.has_value()) {
    merges.o = ViewOf(Buffer(*merge.o), slice.tokens, slice.head);
  }
  if (merge.lse.has_value()) {
    merges.lse = FloatsAt(Buffer(*merge.lse), slice.tokens.first, slice.head);
  }
  merges.rows = slice.tokens.count;
  merges.heads = slice.heads;
  merges.dim = request_.ProblemOf(slice.sequence).value_dim;
  return merges;
}

RowState PlanTensors::StateOf(const plan::State& state,
                              const Slice& rows) const {
  RowState views;
  if (state.o.has_value()) {
    views.o = Const(ViewOf(Buffer(*state.o), rows.tokens, rows.head));
  }
  views.lse = Const(FloatsAt(Buffer(state.lse), rows.tokens.first, rows.head));
  return views;
}

Problem PlanTensors::ProblemOf(const plan::Part& part,
                               std::vector<KvSegment>& segments) const {
  const plan::SequenceShape& sequence = request_.sequences[part.sequence];
  const plan::ProblemShape& shape = request_.ProblemOf(sequence);
  const RowIntervals& sees = sequence.sees;
  Problem p = group_.problem(sequence.problem);
  p.batch = 1;
  p.q_len = part.rows.count;
  p.q_heads = part.kv_heads * shape.group();
  p.kv_heads = part.kv_heads;
  p.q_lens = {};
  p.q_starts = {};
  p.q_start = sees.q_start + part.rows.first * sees.q_stride;
  p.q_stride = sees.q_stride * part.rows.step;
  // A kernel that goes by the whole sequence's sizes gives its bits. Where the
  // plan's results have others anyway it goes by the part's own: of a long
  // sequence a device may have a few rows, for which another kernel is faster,
  // and none of them begins where CutUnit says.
  if (plan::HasOneDevicesBits(plan_.kind)) {
    p.whole = Whole{sees.rows, sees.columns, shape.q_heads, shape.kv_heads,
                    part.kv_head};
  }
  p.q = Const(RowsOf(part, TensorId::kQ));
  p.bias = {};
  if (part.buffers[TensorId::kBias].has_value()) {
    const TensorView bias = RowsOf(part, TensorId::kBias);
    p.bias = {bias.data, bias.dtype, 0,
              shape.bias_per_head ? bias.head_stride : 0, bias.token_stride};
  }
  for (const plan::Columns& columns : part.columns) {
    const auto view = [&](int buffer) {
      return ViewOf(Buffer(buffer), columns.run, part.kv_head);
    };
    KvSegment segment;
    segment.k = Const(view(columns.k));
    segment.v = Const(view(columns.v));
    if (columns.dk.has_value()) segment.dk = view(*columns.dk);
    if (columns.dv.has_value()) segment.dv = view(*columns.dv);
    if (columns.dk_before.has_value()) {
      segment.dk_before = Const(view(*columns.dk_before));
    }
    if (columns.dv_before.has_value()) {
      segment.dv_before = Const(view(*columns.dv_before));
    }
    segment.len = columns.run.count;
    segment.positions.start =
        sees.kv_start + columns.run.first * sees.kv_stride;
    segment.positions.stride = sees.kv_stride * columns.run.step;
    segments.push_back(segment);
  }
  p.kv = segments;
  return p;
}

TensorView PlanTensors::RowsOf(const plan::Part& part, TensorId id) const {
  return RowsOf(part, id, part.buffers[id]);
}

TensorView PlanTensors::RowsOf(const plan::Part& part, TensorId id,
                               const std::optional<int>& buffer) const {
  if (!buffer.has_value()) return {};
  const plan::ProblemShape& shape = request_.ProblemOf(part.sequence);
  const bool one_head = id == TensorId::kBias && !shape.bias_per_head;
  return ViewOf(Buffer(*buffer), part.rows,
                one_head ? 0 : part.kv_head * shape.group());
}

RowView PlanTensors::FloatsOf(const plan::Part& part, TensorId id) const {
  const TensorView rows = RowsOf(part, id);
  return {static_cast<float*>(rows.data), 0, rows.head_stride};
}

ForwardArgs PlanTensors::Forward(const plan::Part& part,
                                 std::vector<KvSegment>& segments) const {
  ForwardArgs args = {ProblemOf(part, segments), RowsOf(part, TensorId::kO),
                      FloatsOf(part, TensorId::kLse)};
  if (part.before.has_value()) {
    const int64_t group = request_.ProblemOf(part.sequence).group();
    args.before = StateOf(*part.before, {part.sequence,
                                         part.kv_head * group,
                                         part.kv_heads * group,
                                         part.rows,
                                         {}});
  }
  return args;
}

BackwardArgs PlanTensors::Backward(const plan::Part& part,
                                   std::vector<KvSegment>& segments) const {
  BackwardArgs args;
  args.problem = ProblemOf(part, segments);
  args.d_o = Const(RowsOf(part, TensorId::kDO));
  args.lse = Const(FloatsOf(part, TensorId::kLse));
  args.o = Const(RowsOf(part, TensorId::kO));
  args.delta = Const(FloatsOf(part, TensorId::kDelta));
  args.d_lse = Const(FloatsOf(part, TensorId::kDLse));
  args.dq = RowsOf(part, TensorId::kDQ);
  args.dq_before = Const(RowsOf(part, TensorId::kDQ, part.dq_before));
  return args;
}

}  // namespace attnd
