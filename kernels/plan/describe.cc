#include <vector>

#include "kernels/plan/plan_request.h"

namespace attnd::plan {
namespace {

// The problem's columns; none where it has no segment.
KvSegment SegmentOf(const Problem& p) {
  return p.kv.empty() ? KvSegment() : p.kv.front();
}

// Sequence b of the problem alone, for Backend::Cut, which looks at no memory.
Problem Alone(const Problem& p, int64_t b, KvSegment& segment) {
  Problem alone = p;
  segment = SegmentOf(p);
  segment.len = KvLen(p, b);
  segment.lens = {};
  segment.positions.starts = {};
  alone.kv = {&segment, 1};
  alone.batch = 1;
  alone.q_len = QLen(p, b);
  alone.q_lens = {};
  alone.q_starts = {};
  return alone;
}

class Describer {
 public:
  Describer(Op op, const GroupOptions& options, const Backend& backend)
      : options_(options), backend_(backend) {
    request_.op = op;
    request_.kind = options.plan;
    request_.deterministic = options.deterministic;
    request_.rates = backend.Rates();
  }

  void Add(const Problem& p, ProblemShape shape) {
    shape.q_heads = p.q_heads;
    shape.kv_heads = p.kv_heads;
    shape.head_dim = p.head_dim;
    shape.value_dim = p.value_dim;
    shape.inputs[TensorId::kQ] = p.dtype();
    shape.inputs[TensorId::kK] = p.dtype();
    shape.inputs[TensorId::kV] = p.dtype();
    if (p.bias) {
      shape.inputs[TensorId::kBias] = p.bias.dtype;
      shape.bias_per_head = p.bias.head_stride != 0;
    }
    const auto problem = static_cast<int32_t>(request_.problems.size());
    request_.problems.push_back(shape);
    if (p.q_heads == 0) return;
    for (int64_t b = 0; b < p.batch; ++b) {
      SequenceShape sequence;
      sequence.problem = problem;
      sequence.b = b;
      sequence.sees = MakeRowIntervals(p, b, SegmentOf(p));
      if (sequence.sees.rows == 0 &&
          (request_.op == Op::kForward || sequence.sees.columns == 0)) {
        continue;
      }
      KvSegment segment;
      sequence.unit = backend_.Cut(Alone(p, b, segment), options_);
      request_.sequences.push_back(sequence);
    }
  }

  PlanRequest Take() { return std::move(request_); }

 private:
  const GroupOptions options_;
  const Backend& backend_;
  PlanRequest request_;
};

template <class View>
void Note(const View& view, TensorId id,
          PerTensor<std::optional<DType>>& tensors) {
  if (!view) return;
  if constexpr (requires { view.dtype; }) {
    tensors[id] = view.dtype;
  } else {
    tensors[id] = DType::kF32;
  }
}

}  // namespace

PlanRequest DescribeShapes(Op op, absl::Span<const Problem* const> problems,
                           const GroupOptions& options,
                           const Backend& backend) {
  Describer describer(op, options, backend);
  for (const Problem* problem : problems) {
    const DType dtype = problem->dtype();
    ProblemShape shape;
    if (op == Op::kForward) {
      shape.outputs[TensorId::kO] = dtype;
      shape.outputs[TensorId::kLse] = DType::kF32;
    } else {
      for (const TensorId id : {TensorId::kDQ, TensorId::kDK, TensorId::kDV}) {
        shape.outputs[id] = dtype;
      }
      shape.inputs[TensorId::kDO] = shape.inputs[TensorId::kO] = dtype;
      shape.inputs[TensorId::kLse] = DType::kF32;
    }
    describer.Add(*problem, shape);
  }
  return describer.Take();
}

PlanRequest Describe(absl::Span<const ForwardArgs> group,
                     const GroupOptions& options, const Backend& backend) {
  Describer describer(Op::kForward, options, backend);
  for (const ForwardArgs& args : group) {
    ProblemShape shape;
    Note(args.o, TensorId::kO, shape.outputs);
    Note(args.lse, TensorId::kLse, shape.outputs);
    describer.Add(args.problem, shape);
  }
  return describer.Take();
}

PlanRequest Describe(absl::Span<const BackwardArgs> group,
                     const GroupOptions& options, const Backend& backend) {
  Describer describer(Op::kBackward, options, backend);
  for (const BackwardArgs& args : group) {
    ProblemShape shape;
    Note(args.d_o, TensorId::kDO, shape.inputs);
    Note(args.lse, TensorId::kLse, shape.inputs);
    Note(args.o, TensorId::kO, shape.inputs);
    Note(args.delta, TensorId::kDelta, shape.inputs);
    Note(args.d_lse, TensorId::kDLse, shape.inputs);
    Note(args.dq, TensorId::kDQ, shape.outputs);
    Note(SegmentOf(args.problem).dk, TensorId::kDK, shape.outputs);
    Note(SegmentOf(args.problem).dv, TensorId::kDV, shape.outputs);
    describer.Add(args.problem, shape);
  }
  return describer.Take();
}

}  // namespace attnd::plan
