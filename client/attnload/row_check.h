#ifndef ATTND_CLIENT_ATTNLOAD_ROW_CHECK_H_
#define ATTND_CLIENT_ATTNLOAD_ROW_CHECK_H_

// Whether an answer is right, from a few of its rows recomputed in double.
// Each element's bound is what rounding alone can do to it: follows from the
// sizes of the sums, the input's type and the output's, so a correct answer is
// never called wrong, and one from wrong rows, columns or heads does not pass.

#include <cstdint>
#include <random>
#include <string>

#include "client/attnload/payload.h"

namespace attnd::attnload {

// Half the distance between 1 and the next larger value: what rounding to the
// type may cost, relative to the value.
double UnitRoundoff(client::DType dtype);

struct RowVerdict {
  int64_t elements = 0;
  // The largest error as a share of its bound; <= 1 is right.
  double worst = 0;
  std::string where;  // of the worst: "o[0, 17, 3, 5]: 0.25, should be 0.5"

  bool right() const { return worst <= 1; }
  void Merge(const RowVerdict& other);
};

// Checks `rows` random rows of O and LSE; for backward, of dQ, and as many of
// dK and dV. O(rows * (q_len * group + kv_len) * dims).
RowVerdict CheckRows(const Payload& payload, const Answer& answer, int rows,
                     std::mt19937_64& random);

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_ROW_CHECK_H_
