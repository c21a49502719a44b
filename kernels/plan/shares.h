#ifndef ATTND_KERNELS_PLAN_SHARES_H_
#define ATTND_KERNELS_PLAN_SHARES_H_

// Who computes what where whole K/V heads are shared out.

#include <cstdint>
#include <vector>

#include "kernels/plan/plan_request.h"
#include "kernels/plan/run.h"

namespace attnd::plan {

// Some kv heads of one sequence, with all of its rows; or one, with some.
struct Share {
  int32_t sequence = 0;
  int64_t kv_head = 0, kv_heads = 0;
  Run rows;

  // Whether other devices have other rows of the head.
  bool is_cut(const PlanRequest& request) const {
    return rows.count < request.sequences[sequence].sees.rows;
  }
};

// By device, in the order of sequences, heads and rows. Each device has about
// as many pairs to compute: a head is cut where whole ones would differ by more
// than a fiftieth.
std::vector<std::vector<Share>> ShareHeads(const PlanRequest& request,
                                           int devices);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_SHARES_H_
