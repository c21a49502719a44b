#ifndef ATTND_SERVER_FRONT_TENSOR_FIELDS_H_
#define ATTND_SERVER_FRONT_TENSOR_FIELDS_H_

// Which field of attn.v1's messages is which tensor. What walks a message's
// tensors, in either direction, walks one of these tables.

#include "absl/types/span.h"
#include "attn/v1/attention.pb.h"
#include "kernels/attention.h"
#include "kernels/request.h"

namespace attnd::server {

struct TensorField {
  int number;
  TensorId id;
};

// The fields of the type Tensor in one kind of request.
inline constexpr TensorField kForwardInputs[] = {
    {attn::v1::ForwardRequest::kQFieldNumber, TensorId::kQ},
    {attn::v1::ForwardRequest::kKFieldNumber, TensorId::kK},
    {attn::v1::ForwardRequest::kVFieldNumber, TensorId::kV},
    {attn::v1::ForwardRequest::kBiasFieldNumber, TensorId::kBias},
};
inline constexpr TensorField kBackwardInputs[] = {
    {attn::v1::BackwardRequest::kQFieldNumber, TensorId::kQ},
    {attn::v1::BackwardRequest::kKFieldNumber, TensorId::kK},
    {attn::v1::BackwardRequest::kVFieldNumber, TensorId::kV},
    {attn::v1::BackwardRequest::kBiasFieldNumber, TensorId::kBias},
    {attn::v1::BackwardRequest::kDOFieldNumber, TensorId::kDO},
    {attn::v1::BackwardRequest::kLseFieldNumber, TensorId::kLse},
    {attn::v1::BackwardRequest::kOFieldNumber, TensorId::kO},
    {attn::v1::BackwardRequest::kDeltaFieldNumber, TensorId::kDelta},
    {attn::v1::BackwardRequest::kDLseFieldNumber, TensorId::kDLse},
};

// Those of the type OutputSpec.
inline constexpr TensorField kForwardOutputs[] = {
    {attn::v1::ForwardRequest::kOFieldNumber, TensorId::kO},
    {attn::v1::ForwardRequest::kLseFieldNumber, TensorId::kLse},
};
inline constexpr TensorField kBackwardOutputs[] = {
    {attn::v1::BackwardRequest::kDqFieldNumber, TensorId::kDQ},
    {attn::v1::BackwardRequest::kDkFieldNumber, TensorId::kDK},
    {attn::v1::BackwardRequest::kDvFieldNumber, TensorId::kDV},
};

// The fields of the type Tensor in one kind of response.
inline constexpr TensorField kForwardResults[] = {
    {attn::v1::ForwardResponse::kOFieldNumber, TensorId::kO},
    {attn::v1::ForwardResponse::kLseFieldNumber, TensorId::kLse},
};
inline constexpr TensorField kBackwardResults[] = {
    {attn::v1::BackwardResponse::kDqFieldNumber, TensorId::kDQ},
    {attn::v1::BackwardResponse::kDkFieldNumber, TensorId::kDK},
    {attn::v1::BackwardResponse::kDvFieldNumber, TensorId::kDV},
};

// Those of a request, or a response, of one kind.
inline absl::Span<const TensorField> InputFields(Op op) {
  if (op == Op::kForward) return kForwardInputs;
  return kBackwardInputs;
}
inline absl::Span<const TensorField> OutputFields(Op op) {
  if (op == Op::kForward) return kForwardOutputs;
  return kBackwardOutputs;
}
inline absl::Span<const TensorField> ResultFields(Op op) {
  if (op == Op::kForward) return kForwardResults;
  return kBackwardResults;
}

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_TENSOR_FIELDS_H_
