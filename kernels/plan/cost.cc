#include "kernels/plan/cost.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "kernels/plan/choose.h"
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

double FlopsOf(const PlanRequest& request, const Compute& compute) {
  double flops = 0;
  for (const Part& part : compute.parts) {
    const SequenceShape& sequence = request.sequences[part.sequence];
    double pairs = 0;
    for (const Columns& columns : part.columns) {
      pairs += PairsOf(sequence.sees, part.rows, columns.run);
    }
    const int64_t q_heads = part.kv_heads * request.ProblemOf(sequence).group();
    flops += pairs * FlopsOfPair(request, sequence, q_heads);
  }
  return flops;
}

namespace {

// What a problem's tensors take, all of each, in bytes.
struct TensorBytes {
  double q, kv, bias;
  // In f32, as results and terms may be; a row has one LSE, delta and gradient
  // of LSE each.
  double o, row_floats, dq, dkv;
  double d_o;
  double head_kv, head_dkv;  // K and V, dK and dV of a head alone

  explicit TensorBytes(const Problem& p) {
    constexpr double kFloat = sizeof(float);
    const double size = static_cast<double>(SizeOf(p.dtype()));
    const double dim = static_cast<double>(p.head_dim),
                 value_dim = static_cast<double>(p.value_dim);
    const double batch = static_cast<double>(p.batch);
    const double rows =
        batch * static_cast<double>(p.q_len) * static_cast<double>(p.q_heads);
    const double kv_len = static_cast<double>(PaddedKvLen(p));
    head_kv = kv_len * (dim + value_dim) * size;
    head_dkv = kv_len * (dim + value_dim) * kFloat;
    kv = batch * static_cast<double>(p.kv_heads) * head_kv;
    dkv = batch * static_cast<double>(p.kv_heads) * head_dkv;
    q = rows * dim * size;
    o = rows * value_dim * kFloat;
    row_floats = rows * kFloat;
    d_o = rows * value_dim * size;
    dq = rows * dim * kFloat;
    bias = rows * static_cast<double>(p.bias.row_stride) *
           static_cast<double>(SizeOf(p.bias.dtype));
  }
  double own() const { return q + o + 3 * row_floats + kv + bias; }
};

// Each buffer is aligned.
double Aligned(double bytes, double buffers) {
  return bytes + buffers * static_cast<double>(kTensorAlignment);
}

double MostOfHeads(Op op, const TensorBytes& bytes, double batch, double n) {
  // Each device may have some rows of one more head, and terms of its dK, dV.
  double all = bytes.own() + n * (bytes.head_kv + 2 * bytes.head_dkv);
  if (op == Op::kBackward) all += bytes.d_o + bytes.dq + bytes.dkv;
  return Aligned(all, (batch + 3 * n) * 16);
}

double MostOfGather(Op op, const TensorBytes& bytes, const Problem& p,
                    double n) {
  const bool by_columns_too = op == Op::kBackward && p.q_heads > p.kv_heads;
  // Of columns, each device may have two runs of rows, and so two terms of dK
  // and dV; and of all terms whoever adds them up has a copy.
  double gathered = n * bytes.kv;
  if (op == Op::kBackward) {
    const double by_columns = bytes.d_o + n * (bytes.kv + 4 * bytes.dkv);
    gathered = n * (bytes.q + bytes.d_o + 3 * bytes.row_floats + 2 * bytes.dq +
                    bytes.bias);
    if (by_columns_too) gathered = std::max(gathered, by_columns);
    gathered += bytes.dq + bytes.dkv;
  }
  // In each section, on each device, at most so many of a sequence.
  const double buffers = by_columns_too ? 16 + 8 * n : 16;
  return Aligned(bytes.own() + gathered,
                 static_cast<double>(p.batch) * n * kMostSections * buffers);
}

// Two memories a device for what goes round of a block, `bytes` of all blocks:
// a block has two runs at most, each by less than a token longer than its
// share.
double TwoBlocks(double bytes, const Problem& p, double n) {
  const double tokens = std::max(1.0, static_cast<double>(PaddedKvLen(p)));
  return 2 * bytes * (1 + 2 * n / tokens);
}

// By Transport::kRing: nobody who is charged before there is a plan may ask for
// the other one.
double MostOfRing(Op op, const TensorBytes& bytes, const Problem& p, double n) {
  const double batch = static_cast<double>(p.batch);
  const double given = bytes.q + bytes.bias + TwoBlocks(bytes.kv, p, n);
  if (op == Op::kForward) {
    // Two states, the last of which become O and LSE.
    const double all = given + 2 * (bytes.o + bytes.row_floats);
    // K and V of two runs in two slots, and of two runs of rows Q, two states,
    // and the bias of each step.
    return Aligned(all, batch * n * (8 + 2 * (5 + n)));
  }
  // dQ takes O's memory over, and is then rounded into some of its own, as
  // large as Q. dK and dV go round in f32, and end where they are results.
  const double rounded = p.dtype() == DType::kF32 ? 0 : bytes.q;
  const double all = given + bytes.d_o + 3 * bytes.row_floats +
                     std::max(bytes.o, bytes.dq) + rounded +
                     TwoBlocks(bytes.dkv, p, n) + bytes.dkv;
  // As forward, with dK and dV, both of which are results, too; and of rows
  // what backward has of them.
  return Aligned(all, batch * n * (20 + 2 * (7 + n)));
}

double MostOfKv(Op op, const TensorBytes& bytes, const Problem& p, double n) {
  const double batch = static_cast<double>(p.batch);
  // All rows on all devices, whose terms one of them has, too.
  if (op == Op::kForward) {
    return Aligned(n * bytes.q + bytes.kv + bytes.bias +
                       2 * n * (bytes.o + bytes.row_floats),
                   batch * n * 8);
  }
  return Aligned(n * (bytes.q + bytes.o + bytes.d_o + 3 * bytes.row_floats) +
                     bytes.kv + bytes.bias + bytes.dkv + 2 * n * bytes.dq,
                 batch * n * 13);
}

}  // namespace

double MostBufferBytes(Op op, const Problem& p, PlanKind kind, int devices) {
  const TensorBytes bytes(p);
  const double n = devices;
  const double heads = MostOfHeads(op, bytes, static_cast<double>(p.batch), n);
  if (kind == PlanKind::kAuto) {
    double most = 0;
    for (const PlanKind candidate : Candidates()) {
      most = std::max(most, MostBufferBytes(op, p, candidate, devices));
    }
    return most;
  }
  if (!SharesTokens(kind)) return heads;
  if (kind == PlanKind::kGather) return MostOfGather(op, bytes, p, n);
  // Of many sequences it is heads.
  return std::max(heads, kind == PlanKind::kKv ? MostOfKv(op, bytes, p, n)
                                               : MostOfRing(op, bytes, p, n));
}

}  // namespace attnd::plan
