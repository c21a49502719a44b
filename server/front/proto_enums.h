#ifndef ATTND_SERVER_FRONT_PROTO_ENUMS_H_
#define ATTND_SERVER_FRONT_PROTO_ENUMS_H_

// The enumerations of attn.v1 and what they stand for. Errors: INVALID_ARGUMENT
// with the field's path, for a value that the schema lacks.

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"
#include "kernels/attention.h"
#include "kernels/plan_kind.h"
#include "kernels/request.h"
#include "server/work/work.h"

namespace attnd::server {

// Must be given; `tensor` is whose it is.
absl::StatusOr<DType> FromProto(attn::v1::DataType dtype, TensorId tensor);
// The rest have defaults: kBshd, kAuto, kAuto, kNormal.
absl::StatusOr<Layout> FromProto(attn::v1::Layout layout);
absl::StatusOr<Algorithm> FromProto(attn::v1::Algorithm algorithm);
absl::StatusOr<PlanKind> FromProto(attn::v1::Plan plan);
absl::StatusOr<Priority> FromProto(attn::v1::Priority priority);

attn::v1::DataType ToProto(DType dtype);
attn::v1::Algorithm ToProto(Algorithm algorithm);
attn::v1::Plan ToProto(PlanKind plan);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_PROTO_ENUMS_H_
