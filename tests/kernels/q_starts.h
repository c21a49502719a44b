#ifndef ATTND_TESTS_KERNELS_Q_STARTS_H_
#define ATTND_TESTS_KERNELS_Q_STARTS_H_

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace attnd::testing {

// Where row 0 of each sequence stands. A problem over some of another's columns
// has to be told, since the default depends on those that it does not have.
inline std::vector<int64_t> QStarts(const Problem& p) {
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < p.batch; ++b) {
    starts.push_back(!p.q_starts.empty()
                         ? p.q_starts[b]
                         : p.q_start.value_or(KvLen(p, b) - QLen(p, b)));
  }
  return starts;
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_Q_STARTS_H_
