#ifndef ATTND_KERNELS_REQUEST_CHECKS_H_
#define ATTND_KERNELS_REQUEST_CHECKS_H_

// The steps of Request::Create, each in a file of its own, in this order. Each
// trusts only what the earlier ones have checked.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/request.h"

namespace attnd {

// Every dimension, and batch * heads, also of tensors without elements.
inline constexpr int64_t kMaxDimension = int64_t{1} << 31;
// A tensor's bytes; sums over a request's tensors cannot overflow.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 56;

// request_shapes.cc

// The bytes of a contiguous tensor: dimensions are in [0, kMaxDimension] and
// the product is at most kMaxTensorBytes. Errors name the tensor's `member`,
// such as ".shape".
absl::StatusOr<int64_t> CheckedBytes(const TensorSpec& spec, TensorId id,
                                     absl::string_view member = "");
// Ranks, dimensions, heads and types of Q, K and V. For packed layouts this
// also checks q_lens and kv_lens, since they cut the tensors.
absl::StatusOr<Sizes> CheckSizes(const RequestSpec& spec);
// Every other input against the sizes: which are given, shapes and types.
absl::Status CheckInputs(const RequestSpec& spec, const Sizes& sizes);
// The shape that a tensor must have. For bias: with nothing broadcast.
TensorSpec ExpectedSpec(TensorId id, const RequestSpec& spec,
                        const Sizes& sizes);

// request_positions.cc

// q_lens and kv_lens (not packed), starts, strides: every position of every
// sequence lies within +-kMaxPosition.
absl::Status CheckPositions(const RequestSpec& spec, const Sizes& sizes);
// Scale, softcap and windows.
absl::Status CheckScalars(const RequestSpec& spec);
// See Request::flops. O(length of the spec's vectors + a bounded sample).
double CountFlops(const RequestSpec& spec, const Sizes& sizes);

}  // namespace attnd

#endif  // ATTND_KERNELS_REQUEST_CHECKS_H_
