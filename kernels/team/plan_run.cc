#include "kernels/team/plan_run.h"

#include <utility>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"

namespace attnd {
namespace {

using plan::Slice;

TensorView ViewAt(const Place& place, int64_t token, int64_t head) {
  return {place.At(token, head), place.dtype, 0, place.token_stride,
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

}  // namespace

PlanRun::PlanRun(const plan::PlanRequest& request, const plan::Plan& plan,
                 const Group& group, const GroupOptions& options,
                 absl::Span<MemberStream* const> streams, int first_point)
    : request_(request),
      plan_(plan),
      group_(group),
      options_(options),
      streams_(streams),
      first_point_(first_point),
      board_(plan.steps.size()) {
  FindPoints();
}

PlanRun::Stage PlanRun::StageOf(const plan::Step& step) {
  if (std::holds_alternative<plan::Upload>(step.what)) return Stage::kLoad;
  if (std::holds_alternative<plan::Download>(step.what)) return Stage::kStore;
  return Stage::kCompute;
}

PlanRun::Queue PlanRun::QueueOf(const plan::Step& step) {
  if (std::holds_alternative<plan::Upload>(step.what)) return Queue::kUpload;
  if (std::holds_alternative<plan::Pull>(step.what)) return Queue::kPull;
  if (std::holds_alternative<plan::Download>(step.what)) {
    return Queue::kDownload;
  }
  return Queue::kCompute;
}

// Whether a step comes after another of its device by itself: pulls may
// overlap, and so may kernels.
bool PlanRun::FollowsByItself(const plan::Step& step,
                              const plan::Step& before) {
  const Queue queue = QueueOf(step);
  return before.device == step.device && QueueOf(before) == queue &&
         queue != Queue::kPull && queue != Queue::kCompute;
}

void PlanRun::FindPoints() {
  is_point_.resize(plan_.steps.size());
  for (const plan::Step& step : plan_.steps) {
    for (int other : step.after) {
      if (!FollowsByItself(step, plan_.steps[other])) is_point_[other] = true;
    }
  }
}

absl::Status PlanRun::Allocate() {
  memory_.clear();
  for (const plan::Buffer& buffer : plan_.buffers) {
    absl::StatusOr<std::byte*> memory = streams_[buffer.device]->Allocate(
        SliceBytes(request_, buffer.tensor, buffer.dtype, buffer.slice));
    if (!memory.ok()) {
      failed_ = buffer.device;
      return memory.status();
    }
    memory_.push_back(*memory);
  }
  return absl::OkStatus();
}

absl::Status PlanRun::Run(Crew& crew, std::optional<Stage> stage) {
  std::vector<absl::Status> statuses(plan_.devices);
  crew.Run(plan_.devices, [&](int device) {
    statuses[device] = RunDevice(device, stage);
    if (!statuses[device].ok()) board_.Stop();
  });
  failed_ = -1;
  absl::Status status;
  for (int device = 0; device < plan_.devices; ++device) {
    // Who gave up because of another says CANCELLED.
    if (statuses[device].ok()) continue;
    if (status.ok() || absl::IsCancelled(status)) {
      status = statuses[device];
      failed_ = absl::IsCancelled(status) ? -1 : device;
    }
  }
  return status;
}

absl::Status PlanRun::RunDevice(int device, std::optional<Stage> stage) {
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const plan::Step& step = plan_.steps[i];
    if (step.device != device) continue;
    if (stage.has_value() && StageOf(step) != *stage) continue;
    if (board_.stopped() || IsCancelled(group_)) {
      return absl::CancelledError("cancelled");
    }
    absl::Status status = RunStep(static_cast<int>(i));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PlanRun::RunStep(int index) {
  const plan::Step& step = plan_.steps[index];
  absl::Status status = AwaitOthers(index);
  if (status.ok()) status = Enqueue(step.device, step);
  if (status.ok() && is_point_[index]) {
    status = streams_[step.device]->Record(QueueOf(step), first_point_ + index);
  }
  if (status.ok()) board_.Post(index);
  return status;
}

absl::Status PlanRun::AwaitOthers(int index) {
  const plan::Step& step = plan_.steps[index];
  for (int other : step.after) {
    if (!board_.Await(other)) return absl::CancelledError("cancelled");
    const plan::Step& before = plan_.steps[other];
    if (FollowsByItself(step, before)) continue;
    absl::Status status = streams_[step.device]->Await(
        QueueOf(step), *streams_[before.device], first_point_ + other);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

Place PlanRun::PlaceOfBuffer(int index) const {
  const plan::Buffer& buffer = plan_.buffers[index];
  const Slice& slice = buffer.slice;
  const Place host = HostPlace(index);
  const plan::ProblemShape& shape = request_.ProblemOf(slice.sequence);
  const int64_t elements = buffer.tensor == TensorId::kBias
                               ? Columns(slice)
                               : TokenElements(shape, buffer.tensor);
  Place place{memory_[index], buffer.dtype};
  // As the host's memory lies, so that copies are long; LSE and its kin are
  // wanted so.
  if (IsRowFloats(buffer.tensor) || host.head_stride > host.token_stride) {
    place.token_stride = elements;
    place.head_stride = slice.tokens.count * elements;
  } else {
    place.head_stride = elements;
    place.token_stride = slice.heads * elements;
  }
  place.data = place.At(-slice.tokens.first, -slice.head);
  return place;
}

Place PlanRun::HostPlace(int buffer) const {
  const plan::Buffer& b = plan_.buffers[buffer];
  return PlaceOf(group_, request_.sequences[b.slice.sequence], b.tensor);
}

template <class Copy>
absl::Status PlanRun::ForEachBlock(int buffer, const Slice& slice,
                                   const Place& from, const Place& to,
                                   Copy copy) const {
  if (slice.tokens.empty() || slice.heads <= 0) return absl::OkStatus();
  const plan::Buffer& b = plan_.buffers[buffer];
  const int64_t size = SizeOf(b.dtype);
  const int64_t tokens = slice.tokens.count, token = slice.tokens.first;
  absl::Status status;
  if (b.tensor == TensorId::kBias) {
    int64_t column = 0;
    for (const plan::Run& run : slice.columns) {
      const int64_t from_column = from.has_all_columns ? run.first : column;
      const int64_t to_column = to.has_all_columns ? run.first : column;
      for (int64_t h = slice.head; h < slice.head + slice.heads; ++h) {
        status.Update(copy(Merged(
            {from.At(token, h) + from_column * size,
             to.At(token, h) + to_column * size, run.count * size, tokens,
             from.token_stride * size, to.token_stride * size})));
      }
      column += run.count;
    }
    return status;
  }
  const int64_t elements =
      TokenElements(request_.ProblemOf(slice.sequence), b.tensor);
  const auto side_by_side = [](int64_t a, int64_t b, int64_t stride) {
    return a == stride && b == stride;
  };
  if (slice.heads == 1 ||
      side_by_side(from.head_stride, to.head_stride, elements)) {
    return copy(Merged({from.At(token, slice.head), to.At(token, slice.head),
                        slice.heads * elements * size, tokens,
                        from.token_stride * size, to.token_stride * size}));
  }
  if (side_by_side(from.token_stride, to.token_stride, elements)) {
    return copy(Merged({from.At(token, slice.head), to.At(token, slice.head),
                        tokens * elements * size, slice.heads,
                        from.head_stride * size, to.head_stride * size}));
  }
  for (int64_t h = slice.head; h < slice.head + slice.heads; ++h) {
    status.Update(copy(
        Merged({from.At(token, h), to.At(token, h), elements * size, tokens,
                from.token_stride * size, to.token_stride * size})));
  }
  return status;
}

absl::Status PlanRun::Enqueue(int device, const plan::Step& step) {
  return std::visit(
      [&](const auto& what) { return this->Enqueue(device, what); }, step.what);
}

absl::Status PlanRun::Enqueue(int device, const plan::Upload& upload) {
  return ForEachBlock(
      upload.to, upload.slice, HostPlace(upload.to), PlaceOfBuffer(upload.to),
      [&](const BlockCopy& copy) { return streams_[device]->Upload(copy); });
}

absl::Status PlanRun::Enqueue(int device, const plan::Download& download) {
  return ForEachBlock(
      download.from, download.slice, PlaceOfBuffer(download.from),
      HostPlace(download.from),
      [&](const BlockCopy& copy) { return streams_[device]->Download(copy); });
}

absl::Status PlanRun::Enqueue(int device, const plan::Pull& pull) {
  std::vector<BlockCopy> copies;
  for (const plan::Pull::Item& item : pull.items) {
    absl::Status status =
        ForEachBlock(item.to, item.slice, PlaceOfBuffer(item.from),
                     PlaceOfBuffer(item.to), [&copies](const BlockCopy& copy) {
                       copies.push_back(copy);
                       return absl::OkStatus();
                     });
    if (!status.ok()) return status;
  }
  return streams_[device]->PullAll(*streams_[pull.peer], copies);
}

absl::Status PlanRun::Enqueue(int device, const plan::Dot& dot) {
  const Slice& slice = dot.slice;
  const int64_t row = slice.tokens.first;
  RowDots dots;
  dots.a = Const(ViewAt(PlaceOfBuffer(dot.d_o), row, slice.head));
  dots.b = Const(ViewAt(PlaceOfBuffer(dot.o), row, slice.head));
  dots.to = FloatsAt(PlaceOfBuffer(dot.delta), row, slice.head);
  dots.rows = slice.tokens.count;
  dots.heads = slice.heads;
  dots.dim = request_.ProblemOf(slice.sequence).value_dim;
  return streams_[device]->Dot(dots);
}

absl::Status PlanRun::Enqueue(int device, const plan::Sum& sum) {
  const Place to = PlaceOfBuffer(sum.to);
  const plan::Run& tokens = sum.slice.tokens;
  const int64_t head = sum.slice.head, heads = sum.slice.heads;
  const int64_t elements = TokenElements(request_.ProblemOf(sum.slice.sequence),
                                         plan_.buffers[sum.to].tensor);
  // All terms lie as the result does: a head's tokens, or a token's heads, side
  // by side.
  const bool by_heads = to.head_stride > to.token_stride;
  absl::InlinedVector<BlockSum::Term, 8> terms;
  for (int buffer : sum.terms) {
    const Place term = PlaceOfBuffer(buffer);
    terms.push_back(
        {reinterpret_cast<const float*>(term.At(tokens.first, head)),
         by_heads ? term.head_stride : term.token_stride});
  }
  BlockSum block;
  block.terms = terms;
  block.to = to.At(tokens.first, head);
  block.dtype = to.dtype;
  block.to_pitch = by_heads ? to.head_stride : to.token_stride;
  block.row_elements = (by_heads ? tokens.count : heads) * elements;
  block.rows = by_heads ? heads : tokens.count;
  return streams_[device]->Sum(block);
}

// The part's problem, and in `segments` its columns.
Problem PlanRun::ProblemOf(const plan::Part& part,
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
  p.whole = Whole{sees.rows, sees.columns, shape.q_heads, shape.kv_heads};
  p.q = Const(RowsOf(part, TensorId::kQ));
  p.bias = {};
  if (part.buffers[TensorId::kBias].has_value()) {
    const TensorView bias = RowsOf(part, TensorId::kBias);
    p.bias = {bias.data, bias.dtype, 0,
              shape.bias_per_head ? bias.head_stride : 0, bias.token_stride};
  }
  for (const plan::Columns& columns : part.columns) {
    const auto view = [&](int buffer) {
      return ViewAt(PlaceOfBuffer(buffer), columns.run.first, part.kv_head);
    };
    KvSegment segment;
    segment.k = Const(view(columns.k));
    segment.v = Const(view(columns.v));
    if (columns.dk.has_value()) segment.dk = view(*columns.dk);
    if (columns.dv.has_value()) segment.dv = view(*columns.dv);
    segment.len = columns.run.count;
    segment.positions.start =
        sees.kv_start + columns.run.first * sees.kv_stride;
    segment.positions.stride = sees.kv_stride;
    segments.push_back(segment);
  }
  return p;
}

// What has rows, from the part's first row and head on; a null view if the part
// has none.
TensorView PlanRun::RowsOf(const plan::Part& part, TensorId id) const {
  const std::optional<int>& buffer = part.buffers[id];
  if (!buffer.has_value()) return {};
  const plan::ProblemShape& shape = request_.ProblemOf(part.sequence);
  const bool one_head = id == TensorId::kBias && !shape.bias_per_head;
  return ViewAt(PlaceOfBuffer(*buffer), part.rows.first,
                one_head ? 0 : part.kv_head * shape.group());
}

RowView PlanRun::FloatsOf(const plan::Part& part, TensorId id) const {
  const TensorView rows = RowsOf(part, id);
  return {static_cast<float*>(rows.data), 0, rows.head_stride};
}

absl::Status PlanRun::Enqueue(int device, const plan::Compute& compute) {
  // Problems point to their segments, which must not move.
  std::vector<std::vector<KvSegment>> segments(compute.parts.size());
  std::vector<ForwardArgs> forward;
  std::vector<BackwardArgs> backward;
  for (size_t i = 0; i < compute.parts.size(); ++i) {
    const plan::Part& part = compute.parts[i];
    Problem problem = ProblemOf(part, segments[i]);
    problem.kv = segments[i];
    if (request_.op == Op::kForward) {
      forward.push_back({problem, RowsOf(part, TensorId::kO),
                         FloatsOf(part, TensorId::kLse)});
      continue;
    }
    BackwardArgs args;
    args.problem = problem;
    args.d_o = Const(RowsOf(part, TensorId::kDO));
    args.lse = Const(FloatsOf(part, TensorId::kLse));
    args.o = Const(RowsOf(part, TensorId::kO));
    args.delta = Const(FloatsOf(part, TensorId::kDelta));
    args.d_lse = Const(FloatsOf(part, TensorId::kDLse));
    args.dq = RowsOf(part, TensorId::kDQ);
    backward.push_back(args);
  }
  return request_.op == Op::kForward
             ? streams_[device]->Forward(forward, options_)
             : streams_[device]->Backward(backward, options_);
}

}  // namespace attnd
