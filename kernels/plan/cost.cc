#include "kernels/plan/cost.h"

#include <algorithm>

#include "kernels/plan/cuts.h"
#include "kernels/plan/gather.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {

double FlopsOfPair(const PlanRequest& request, const SequenceShape& sequence,
                   int64_t q_heads) {
  const ProblemShape& shape = request.ProblemOf(sequence);
  return (request.op == Op::kForward ? 2.0 : 5.0) *
         static_cast<double>((shape.head_dim + shape.value_dim) * q_heads);
}

double FlopsOf(const PlanRequest& request, const SequenceShape& sequence) {
  const RowIntervals& sees = sequence.sees;
  return FlopsOfPair(request, sequence, request.ProblemOf(sequence).q_heads) *
         PairsOf(sees, {0, sees.rows}, {0, sees.columns});
}

std::vector<int64_t> MemoryBytes(const PlanRequest& request, const Plan& plan) {
  std::vector<int64_t> bytes;
  bytes.reserve(plan.buffers.size());
  for (const Buffer& buffer : plan.buffers) {
    bytes.push_back(
        SliceBytes(request, buffer.tensor, buffer.dtype, buffer.slice));
  }
  // From the last on, so that each has what comes after it.
  for (size_t i = bytes.size(); i-- > 0;) {
    if (!plan.buffers[i].reuses.has_value()) continue;
    int64_t& earlier = bytes[*plan.buffers[i].reuses];
    earlier = std::max(earlier, bytes[i]);
    bytes[i] = 0;
  }
  return bytes;
}

absl::Duration Predict(const PlanRequest& request, const Plan& plan) {
  double seconds = 0;
  for (const PlanCost::Device& device : plan.cost.devices) {
    const double fetch =
        static_cast<double>(device.pulled_bytes) / request.pulled_per_second;
    const double compute = device.flops / request.flops_per_second;
    const double first = fetch * plan.first_section;
    seconds = std::max(seconds, first + std::max(compute, fetch - first));
  }
  return absl::Seconds(seconds);
}

double MostBufferBytes(Op op, const Problem& p, PlanKind kind, int devices) {
  constexpr double kFloat = sizeof(float);
  const double n = devices, batch = static_cast<double>(p.batch);
  const double size = static_cast<double>(SizeOf(p.dtype()));
  const double dim = static_cast<double>(p.head_dim),
               value_dim = static_cast<double>(p.value_dim);
  const double rows =
      batch * static_cast<double>(p.q_len) * static_cast<double>(p.q_heads);
  const double kv_len = static_cast<double>(PaddedKvLen(p));
  const double columns = batch * kv_len * static_cast<double>(p.kv_heads);
  const double bias = rows * static_cast<double>(p.bias.row_stride) *
                      static_cast<double>(SizeOf(p.bias.dtype));
  // Results may be f32. LSE, delta and the gradient of LSE: three floats a row.
  const double q = rows * dim * size, o = rows * value_dim * kFloat;
  const double kv = columns * (dim + value_dim) * size;
  const double own = q + o + 3 * rows * kFloat + kv;
  const double d_o = rows * value_dim * size, dq = rows * dim * kFloat;
  const double dkv = columns * (dim + value_dim) * kFloat;
  const bool by_columns_too = op == Op::kBackward && p.q_heads > p.kv_heads;
  double bytes = own + bias;
  if (kind == PlanKind::kGather) {
    // Of columns, each device may have two runs of rows, and so two terms of dK
    // and dV; and of all terms whoever adds them up has a copy.
    double gathered = n * kv;
    if (op == Op::kBackward) {
      const double by_columns = d_o + n * (kv + 4 * dkv);
      gathered = n * (q + d_o + 3 * rows * kFloat + 2 * dq + bias);
      if (by_columns_too) gathered = std::max(gathered, by_columns);
      gathered += dq + dkv;
    }
    bytes += gathered;
  } else {
    // Each device may have some rows of one more head, and terms of its dK, dV.
    bytes += n * kv_len * (dim + value_dim) * (size + 2 * kFloat);
    if (op == Op::kBackward) bytes += d_o + dq + dkv;
  }
  // Each buffer is aligned: in each section, on each device, at most so many of
  // a sequence; and of a head alone, on two devices.
  const double buffers = by_columns_too ? 16 + 8 * n : 16;
  const double places =
      kind == PlanKind::kGather ? batch * n * kMostSections : batch + 3 * n;
  return bytes + places * buffers * static_cast<double>(kTensorAlignment);
}

}  // namespace attnd::plan
