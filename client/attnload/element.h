#ifndef ATTND_CLIENT_ATTNLOAD_ELEMENT_H_
#define ATTND_CLIENT_ATTNLOAD_ELEMENT_H_

// Tensor elements as floats.

#include <cstddef>
#include <cstdint>

#include "attnd/client.h"

namespace attnd::attnload {

// Element `index` of an array at `data`. Exact.
float LoadElement(client::DType dtype, const std::byte* data, int64_t index);

// Stores `value`, a multiple of 1/8 of less than 16: exact in every type.
void StoreElement(client::DType dtype, float value, std::byte* data,
                  int64_t index);

// Half the distance between 1 and the next larger value: what rounding to the
// type may cost, relative to the value.
double UnitRoundoff(client::DType dtype);

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_ELEMENT_H_
