#ifndef ATTND_TESTS_THINNED_H_
#define ATTND_TESTS_THINNED_H_

// Sanitizers take several times as long for each problem, and look at what
// every problem has in common: how memory and threads are used. So they get a
// part of the problems, and a plain build gets all.

#include <cstddef>
#include <vector>

namespace attnd::testing {

// ATTND_PROBLEM_STEP is 1, or 3 under sanitizers.
inline constexpr int kProblemStep = ATTND_PROBLEM_STEP;

// Every kProblemStep-th of `items`, the first included.
template <class T>
std::vector<T> Thinned(const std::vector<T>& items) {
  std::vector<T> thinned;
  for (size_t i = 0; i < items.size(); i += kProblemStep) {
    thinned.push_back(items[i]);
  }
  return thinned;
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_THINNED_H_
