#ifndef ATTND_CLIENT_CALL_TENSORS_H_
#define ATTND_CLIENT_CALL_TENSORS_H_

// The tensors of calls, with their fields of the request, in one list for all
// who go through them.

#include <vector>

#include "attn/v1/attention.pb.h"
#include "attnd/client.h"
#include "client/tensor_size.h"

namespace attnd::client {

// visitor.Input(field, tensor) for each input, and for each output
// visitor.Wanted(field, tensor, the shape that the inputs give it, which is
// empty where they give none). Also for those that are absent.
template <typename Visitor>
void VisitTensors(const ForwardCall& call, Visitor& visitor) {
  using Request = ::attn::v1::ForwardRequest;
  visitor.Input(Request::kQFieldNumber, call.q);
  visitor.Input(Request::kKFieldNumber, call.k);
  visitor.Input(Request::kVFieldNumber, call.v);
  visitor.Input(Request::kBiasFieldNumber, call.bias);
  visitor.Wanted(Request::kOFieldNumber, call.o, OutputShape(call.q, call.v));
  visitor.Wanted(Request::kLseFieldNumber, call.lse,
                 LseShape(call.q, call.attention.layout));
}

template <typename Visitor>
void VisitTensors(const BackwardCall& call, Visitor& visitor) {
  using Request = ::attn::v1::BackwardRequest;
  visitor.Input(Request::kQFieldNumber, call.q);
  visitor.Input(Request::kKFieldNumber, call.k);
  visitor.Input(Request::kVFieldNumber, call.v);
  visitor.Input(Request::kBiasFieldNumber, call.bias);
  visitor.Input(Request::kDOFieldNumber, call.d_o);
  visitor.Input(Request::kLseFieldNumber, call.lse);
  visitor.Input(Request::kOFieldNumber, call.o);
  visitor.Input(Request::kDeltaFieldNumber, call.delta);
  visitor.Input(Request::kDLseFieldNumber, call.d_lse);
  visitor.Wanted(Request::kDqFieldNumber, call.dq, call.q.shape);
  visitor.Wanted(Request::kDkFieldNumber, call.dk, call.k.shape);
  visitor.Wanted(Request::kDvFieldNumber, call.dv, call.v.shape);
}

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CALL_TENSORS_H_
