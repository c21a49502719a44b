#include "kernels/request.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "kernels/request_checks.h"

namespace attnd {
namespace {

constexpr TensorId kForwardOutputs[] = {TensorId::kO, TensorId::kLse};
constexpr TensorId kBackwardOutputs[] = {TensorId::kDQ, TensorId::kDK,
                                         TensorId::kDV};

absl::Span<const TensorId> Outputs(Op op) {
  if (op == Op::kForward) return kForwardOutputs;
  return kBackwardOutputs;
}

// What the output looks like, or why it cannot.
absl::StatusOr<TensorSpec> OutputTensor(TensorId id, const RequestSpec& spec,
                                        const Sizes& sizes) {
  TensorSpec tensor = ExpectedSpec(id, spec, sizes);
  const std::optional<DType> dtype = spec.outputs[id].dtype;
  if (!dtype.has_value() || *dtype == tensor.dtype) return tensor;
  if (*dtype != DType::kF32)
    return FieldError(
        absl::StrCat(TensorName(id), ".dtype"),
        id == TensorId::kLse ? "must be F32" : "must be as q's or F32");
  tensor.dtype = DType::kF32;
  return tensor;
}

}  // namespace

absl::string_view TensorName(TensorId id) {
  constexpr absl::string_view kNames[kTensorIds] = {
      "q",   "k",     "v",     "bias", "o",  "lse",
      "d_o", "delta", "d_lse", "dq",   "dk", "dv"};
  return kNames[static_cast<size_t>(id)];
}

absl::StatusOr<std::unique_ptr<const Request>> Request::Create(
    RequestSpec spec) {
  const auto sizes = CheckSizes(spec);
  if (!sizes.ok()) return sizes.status();
  if (absl::Status s = CheckInputs(spec, *sizes); !s.ok()) return s;
  if (absl::Status s = CheckPositions(spec, *sizes); !s.ok()) return s;
  if (absl::Status s = CheckScalars(spec); !s.ok()) return s;

  auto request = absl::WrapUnique(new Request);
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (!spec.inputs[id].has_value()) continue;
    const auto bytes = CheckedBytes(*spec.inputs[id], id);
    if (!bytes.ok()) return bytes.status();
    request->inputs_[id] = {true, *spec.inputs[id], *bytes};
    request->input_bytes_ += *bytes;
  }
  bool wanted = false;
  for (TensorId id : Outputs(spec.op)) {
    auto tensor = OutputTensor(id, spec, *sizes);
    if (!tensor.ok()) return tensor.status();
    const auto bytes = CheckedBytes(*tensor, id);
    if (!bytes.ok()) return bytes.status();
    if (!spec.outputs[id].want) continue;
    wanted = true;
    request->outputs_[id] = {true, *std::move(tensor), *bytes};
    request->output_bytes_ += *bytes;
  }
  if (!wanted)
    return FieldError(absl::StrCat(TensorName(Outputs(spec.op)[0]), ".want"),
                      "no output is wanted");
  request->flops_ = CountFlops(spec, *sizes);
  request->sizes_ = *sizes;
  request->spec_ = std::move(spec);
  return request;
}

}  // namespace attnd
