#ifndef ATTND_KERNELS_PLAN_TERM_FETCH_H_
#define ATTND_KERNELS_PLAN_TERM_FETCH_H_

#include <cstddef>
#include <map>
#include <vector>

#include "kernels/plan/plan.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {

// Some tokens of a result, in f32, on any device.
struct Term {
  int buffer = 0;
  int step = 0;  // which writes it
};

// What one device needs of terms that lie on any: those of other devices are
// pulled, from each of these devices at once.
class TermFetch {
 public:
  TermFetch(int device, PlanBuilder& builder)
      : device_(device), builder_(builder) {}

  // Notes that the device needs a slice of a term: by which number At knows it.
  size_t Bring(const Term& term, const Slice& slice);
  // Adds the pulls.
  void PullAll();
  // The term where it lies on the device, and the step after which it is there,
  // which is known after PullAll.
  const Term& At(size_t number) const { return here_[number]; }

 private:
  // From one device.
  struct Fetch {
    Pull pull;
    std::vector<int> after;
    std::vector<size_t> brings;  // in here_
  };

  const int device_;
  PlanBuilder& builder_;
  std::vector<Term> here_;
  std::map<int, Fetch> fetches_;  // by device
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_TERM_FETCH_H_
