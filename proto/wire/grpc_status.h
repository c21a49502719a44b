#ifndef ATTND_PROTO_WIRE_GRPC_STATUS_H_
#define ATTND_PROTO_WIRE_GRPC_STATUS_H_

// The one mapping between absl::Status and grpc::Status: code, message and
// payloads survive in both directions. A FieldError of base/field_error.h
// arrives as the one of proto/wire/status.h.

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace attnd::wire {

// Payloads travel as a google.rpc.Status in the error details; without any,
// there are no details. gRPC sends at most 8 KiB of both unless told otherwise.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Details that are not a google.rpc.Status are left out; where its code is
// another than the call's, the call's code and message hold.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_GRPC_STATUS_H_
