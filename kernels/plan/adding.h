#ifndef ATTND_KERNELS_PLAN_ADDING_H_
#define ATTND_KERNELS_PLAN_ADDING_H_

#include <vector>

namespace attnd::plan {

// What a Compute that adds to gradients must wait for, and whom to tell that it
// has.
struct Adding {
  std::vector<int> after;
  std::vector<std::vector<int>*> told;

  void Tell(int step) {
    for (std::vector<int>* steps : told) steps->push_back(step);
  }
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_ADDING_H_
