#ifndef ATTND_TESTS_KERNELS_PLAN_CAUSAL_REQUEST_H_
#define ATTND_TESTS_KERNELS_PLAN_CAUSAL_REQUEST_H_

#include <cstdint>

#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// The kinds whose columns go round.
inline constexpr PlanKind kRingKinds[] = {PlanKind::kRing, PlanKind::kStriped,
                                          PlanKind::kZigzag};

// One causal sequence of `tokens` tokens, forward, bf16, D 128.
inline PlanRequest Causal(PlanKind kind, int64_t tokens, int64_t heads) {
  PlanRequest request;
  request.kind = kind;
  ProblemShape shape;
  shape.q_heads = shape.kv_heads = heads;
  shape.head_dim = shape.value_dim = 128;
  for (const TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    shape.inputs[id] = DType::kBF16;
  }
  shape.outputs[TensorId::kO] = DType::kBF16;
  request.problems.push_back(shape);
  SequenceShape sequence;
  sequence.sees.rows = sequence.sees.columns = tokens;
  sequence.sees.right = 0;
  sequence.unit = {128, 17, 128, 1};
  request.sequences.push_back(sequence);
  return request;
}

// The backward of such a forward: of O and LSE, to bf16.
inline PlanRequest Backward(PlanRequest request) {
  request.op = Op::kBackward;
  for (ProblemShape& shape : request.problems) {
    shape.inputs[TensorId::kO] = shape.inputs[TensorId::kDO] = DType::kBF16;
    shape.inputs[TensorId::kLse] = DType::kF32;
    shape.outputs = {};
    for (const TensorId id : {TensorId::kDQ, TensorId::kDK, TensorId::kDV}) {
      shape.outputs[id] = DType::kBF16;
    }
  }
  return request;
}

}  // namespace attnd::plan

#endif  // ATTND_TESTS_KERNELS_PLAN_CAUSAL_REQUEST_H_
