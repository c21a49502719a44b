#include "kernels/plan/plan_builder.h"

#include <algorithm>

#include "kernels/plan/cost.h"

namespace attnd::plan {
namespace {

constexpr TensorId kForwardIn[] = {TensorId::kQ, TensorId::kBias};
constexpr TensorId kForwardOut[] = {TensorId::kO, TensorId::kLse};
constexpr TensorId kBackwardIn[] = {
    TensorId::kQ,  TensorId::kBias,  TensorId::kO,   TensorId::kLse,
    TensorId::kDO, TensorId::kDelta, TensorId::kDLse};
constexpr TensorId kBackwardOut[] = {TensorId::kDQ};

}  // namespace

absl::Span<const TensorId> RowInputs(Op op) {
  if (op == Op::kForward) return kForwardIn;
  return kBackwardIn;
}

absl::Span<const TensorId> RowOutputs(Op op) {
  if (op == Op::kForward) return kForwardOut;
  return kBackwardOut;
}

int64_t TokenElements(const ProblemShape& shape, TensorId id) {
  switch (id) {
    case TensorId::kQ:
    case TensorId::kK:
    case TensorId::kDQ:
    case TensorId::kDK:
      return shape.head_dim;
    case TensorId::kV:
    case TensorId::kO:
    case TensorId::kDO:
    case TensorId::kDV:
      return shape.value_dim;
    case TensorId::kBias:
    case TensorId::kLse:
    case TensorId::kDelta:
    case TensorId::kDLse:
      break;
  }
  return 1;
}

int64_t SliceBytes(const PlanRequest& request, TensorId id, DType dtype,
                   const Slice& slice) {
  int64_t elements = TokenElements(request.ProblemOf(slice.sequence), id);
  if (id == TensorId::kBias) {
    elements = 0;
    for (const Run& run : slice.columns) elements += run.count;
  }
  return slice.heads * slice.tokens.count * elements * SizeOf(dtype);
}

int PlanBuilder::NewBuffer(int device, TensorId tensor, DType dtype,
                           Slice slice, std::optional<int> reuses) {
  plan_.buffers.push_back({device, tensor, dtype, std::move(slice), reuses});
  return static_cast<int>(plan_.buffers.size()) - 1;
}

int PlanBuilder::UploadAll(int buffer) {
  return UploadPart(buffer, plan_.buffers[buffer].slice);
}

int PlanBuilder::UploadPart(int buffer, Slice slice) {
  return Add(plan_.buffers[buffer].device, Upload{buffer, std::move(slice)},
             {});
}

PlanBuilder::Range PlanBuilder::RangeOn(int device, TensorId id,
                                        int32_t sequence, const Run& tokens) {
  const auto [found, is_new] = ranges_.try_emplace({device, id, sequence});
  if (is_new) {
    const ProblemShape& shape = request_.ProblemOf(sequence);
    const Slice slice = ColumnsOf(sequence, 0, shape.kv_heads, tokens);
    const int buffer = NewBuffer(device, id, *shape.inputs[id], slice);
    found->second = {buffer, Add(device, Upload{buffer, slice, true}, {})};
  }
  return found->second;
}

void PlanBuilder::BringColumns(int buffer, Slice slice,
                               std::vector<int>& brought) {
  if (request_.inputs != InputsLie::kByRanges) {
    brought.push_back(UploadPart(buffer, std::move(slice)));
    return;
  }
  const Buffer to = plan_.buffers[buffer];
  const SequenceShape& sequence = request_.sequences[slice.sequence];
  const std::vector<Runs> ranges =
      CutByRanges(sequence.sees.columns, devices(), sequence.unit);
  const ProblemShape& shape = request_.ProblemOf(sequence);
  for (const Run& own : ranges[to.device]) {
    // The buffer is that memory itself.
    if (slice == ColumnsOf(slice.sequence, 0, shape.kv_heads, own) &&
        slice == to.slice) {
      brought.push_back(Add(to.device, Upload{buffer, slice, true}, {}));
      return;
    }
  }
  for (int peer = 0; peer < devices(); ++peer) {
    for (const Run& run : ranges[peer]) {
      Slice common = slice;
      common.tokens = Common(slice.tokens, run);
      if (common.tokens.empty()) continue;
      const Range range = RangeOn(peer, to.tensor, slice.sequence, run);
      brought.push_back(Add(to.device,
                            Pull{peer, {{range.buffer, buffer, common}}},
                            {range.step}));
    }
  }
}

void PlanBuilder::DownloadAll(int buffer, const std::vector<int>& after) {
  const Buffer& from = plan_.buffers[buffer];
  Add(from.device, Download{buffer, from.slice}, after);
}

Slice PlanBuilder::RowsOf(int32_t sequence, int64_t kv_head, int64_t kv_heads,
                          const Run& rows) const {
  const int64_t group = request_.ProblemOf(sequence).group();
  return {sequence, kv_head * group, kv_heads * group, rows, {}};
}

Slice PlanBuilder::BiasOf(int32_t sequence, int64_t kv_head, int64_t kv_heads,
                          const Run& rows, const Runs& columns) const {
  Slice slice = RowsOf(sequence, kv_head, kv_heads, rows);
  if (!request_.ProblemOf(sequence).bias_per_head) {
    slice.head = 0;
    slice.heads = 1;
  }
  slice.columns = columns;
  return slice;
}

void PlanBuilder::Count(const Step& step) {
  PlanCost::Device& cost = plan_.cost.devices[step.device];
  const auto bytes = [this](int buffer, const Slice& slice) {
    const Buffer& b = plan_.buffers[buffer];
    return SliceBytes(request_, b.tensor, b.dtype, slice);
  };
  if (const auto* upload = std::get_if<Upload>(&step.what)) {
    if (upload->lies_there) return;
    cost.uploaded_bytes += bytes(upload->to, upload->slice);
  } else if (const auto* pull = std::get_if<Pull>(&step.what)) {
    if (pull->peer == step.device) return;
    for (const Pull::Item& item : pull->items) {
      cost.pulled_bytes += bytes(item.to, item.slice);
    }
  } else if (const auto* compute = std::get_if<Compute>(&step.what)) {
    cost.flops += FlopsOf(request_, *compute);
  }
}

Plan PlanBuilder::Finish(std::string why, int sections) {
  plan_.sections = sections;
  plan_.cost.devices.resize(plan_.devices);
  const std::vector<int64_t> memory = MemoryBytes(request_, plan_);
  for (size_t i = 0; i < memory.size(); ++i) {
    plan_.cost.devices[plan_.buffers[i].device].memory_bytes +=
        (memory[i] + kTensorAlignment - 1) / kTensorAlignment *
        kTensorAlignment;
  }
  for (const Step& step : plan_.steps) Count(step);
  plan_.why = std::move(why);
  return std::move(plan_);
}

}  // namespace attnd::plan
