#include "tests/kernels/plan/random_request.h"

#include <random>

namespace attnd::plan {
namespace {

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}

  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Chance(double p) { return std::bernoulli_distribution(p)(random_); }
  int64_t Length(int64_t most) {
    if (Chance(0.1)) return 0;
    return Chance(0.3) ? Int(1, 5) : Int(1, most);
  }

 private:
  std::mt19937 random_;
};

ProblemShape DrawProblem(Op op, Random& random) {
  ProblemShape shape;
  shape.kv_heads = random.Int(1, 6);
  shape.q_heads = shape.kv_heads * random.Int(1, 3);
  shape.head_dim = random.Int(1, 16);
  shape.value_dim = random.Int(1, 16);
  const DType dtype = random.Chance(0.5) ? DType::kBF16 : DType::kF32;
  const auto result = [&] { return random.Chance(0.3) ? DType::kF32 : dtype; };
  for (const TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    shape.inputs[id] = dtype;
  }
  if (random.Chance(0.3)) {
    shape.inputs[TensorId::kBias] = result();
    shape.bias_per_head = random.Chance(0.5);
  }
  if (op == Op::kForward) {
    if (random.Chance(0.9)) shape.outputs[TensorId::kO] = result();
    if (random.Chance(0.7)) shape.outputs[TensorId::kLse] = DType::kF32;
    return shape;
  }
  shape.inputs[TensorId::kDO] = dtype;
  shape.inputs[TensorId::kLse] = DType::kF32;
  if (random.Chance(0.5)) {
    shape.inputs[TensorId::kO] = result();
  } else {
    shape.inputs[TensorId::kDelta] = DType::kF32;
  }
  if (random.Chance(0.3)) shape.inputs[TensorId::kDLse] = DType::kF32;
  for (const TensorId id : {TensorId::kDQ, TensorId::kDK, TensorId::kDV}) {
    if (random.Chance(0.8)) shape.outputs[id] = result();
  }
  return shape;
}

RowIntervals DrawIntervals(Random& random) {
  RowIntervals sees;
  sees.rows = random.Length(90);
  sees.columns = random.Length(110);
  sees.q_start = sees.columns - sees.rows;
  if (random.Chance(0.4)) {
    sees.q_start = random.Int(-60, 60);
    sees.kv_start = random.Int(-60, 60);
    sees.q_stride = random.Int(1, 3);
    sees.kv_stride = random.Int(1, 3);
  }
  if (random.Chance(0.3)) return sees;
  sees.right = random.Chance(0.7) ? 0 : random.Int(0, 40);
  if (random.Chance(0.4)) sees.left = random.Int(0, 40);
  return sees;
}

}  // namespace

PlanRequest RandomRequest(uint32_t seed) {
  Random random(seed);
  PlanRequest request;
  request.op = random.Chance(0.5) ? Op::kForward : Op::kBackward;
  constexpr PlanKind kKinds[] = {PlanKind::kHeads,  PlanKind::kGather,
                                 PlanKind::kRing,   PlanKind::kStriped,
                                 PlanKind::kZigzag, PlanKind::kKv};
  request.kind = kKinds[random.Int(0, 5)];
  request.sections = static_cast<int>(random.Int(0, 5));
  if (random.Chance(0.7)) {
    request.gathered =
        random.Chance(0.5) ? Gathered::kColumns : Gathered::kRows;
  }
  const int64_t problems = random.Int(1, 2);
  for (int32_t i = 0; i < problems; ++i) {
    request.problems.push_back(DrawProblem(request.op, random));
    const int64_t batch = random.Int(0, 3);
    for (int64_t b = 0; b < batch; ++b) {
      SequenceShape sequence;
      sequence.problem = i;
      sequence.b = b;
      sequence.sees = DrawIntervals(random);
      sequence.unit.rows = random.Int(1, 16);
      sequence.unit.least_rows = random.Int(1, 8);
      sequence.unit.columns = random.Int(1, 16);
      sequence.unit.least_columns = random.Chance(0.7) ? 1 : random.Int(1, 50);
      request.sequences.push_back(sequence);
    }
  }
  request.inputs = static_cast<InputsLie>(random.Int(0, 2));
  if (random.Chance(0.1)) request.kind = PlanKind::kAuto;
  return request;
}

}  // namespace attnd::plan
