#ifndef ATTND_CLIENT_TENSOR_SIZE_H_
#define ATTND_CLIENT_TENSOR_SIZE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnd/client.h"

namespace attnd::client {

// product(shape) * SizeOf(dtype). INVALID_ARGUMENT naming `field`: a negative
// dimension, or a size, volume 0 or not, that does not fit 62 bits.
absl::StatusOr<int64_t> TensorBytes(absl::string_view field, DType dtype,
                                    const std::vector<int64_t>& shape);

// O's shape as the inputs make it: Q's with V's last dimension. Empty when
// they have no dimensions.
std::vector<int64_t> OutputShape(const ConstTensor& q, const ConstTensor& v);

// LSE's shape: [batch, q_heads, q_len], packed [q_heads, total_q]. Empty when
// Q's rank is not the layout's.
std::vector<int64_t> LseShape(const ConstTensor& q, Layout layout);

// "[2, 3]".
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TENSOR_SIZE_H_
