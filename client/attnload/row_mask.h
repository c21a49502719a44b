#ifndef ATTND_CLIENT_ATTNLOAD_ROW_MASK_H_
#define ATTND_CLIENT_ATTNLOAD_ROW_MASK_H_

#include <algorithm>
#include <cstdint>

#include "client/attnload/shape.h"

namespace attnd::attnload {

// Columns [begin, end) of K and V.
struct Columns {
  int64_t begin = 0, end = 0;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

// What query row `row` sees: rows and columns end at the same position.
inline Columns ColumnsOfRow(const Shape& shape, int64_t row) {
  const int64_t position = shape.kv_len - shape.q_len + row;
  Columns columns{0, shape.kv_len};
  const client::Mask& mask = shape.mask;
  if (mask.window_left >= 0 && mask.window_left < position) {
    columns.begin = position - mask.window_left;
  }
  int64_t right = mask.window_right;
  if (mask.causal) right = 0;
  if (right >= 0 && right < shape.kv_len - 1 - position) {
    columns.end = std::max<int64_t>(0, position + right + 1);
  }
  return columns;
}

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_ROW_MASK_H_
