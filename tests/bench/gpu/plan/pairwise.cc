#include "tests/bench/gpu/plan/pairwise.h"

#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>

namespace attnd::bench {
namespace {

// What one more choice with a pair is worth, in parts of what the last one was:
// a pair that is new counts more than all that are not.
constexpr double kAgain = 1.0 / 32;

// Whether there is a next one.
bool Advance(const std::vector<int>& sizes, Choice& choice) {
  for (size_t i = sizes.size(); i-- > 0;) {
    if (++choice[i] < sizes[i]) return true;
    choice[i] = 0;
  }
  return false;
}

// How many choices have two dimensions' values.
class Pairs {
 public:
  double Worth(const Choice& choice) const {
    double worth = 0;
    ForEach(choice, [&](const Pair& pair) {
      const auto known = counts_.find(pair);
      worth += known == counts_.end() ? 1 : std::pow(kAgain, known->second);
    });
    return worth;
  }

  void Add(const Choice& choice) {
    ForEach(choice, [&](const Pair& pair) { ++counts_[pair]; });
  }

 private:
  using Pair = std::tuple<size_t, int, size_t, int>;

  template <class Visit>
  static void ForEach(const Choice& choice, Visit visit) {
    for (size_t a = 0; a < choice.size(); ++a) {
      for (size_t b = a + 1; b < choice.size(); ++b) {
        visit({a, choice[a], b, choice[b]});
      }
    }
  }

  std::map<Pair, int> counts_;
};

}  // namespace

std::vector<Choice> Pairwise(const std::vector<int>& sizes, int count,
                             absl::FunctionRef<bool(const Choice&)> allows) {
  std::vector<Choice> left, chosen;
  Choice next(sizes.size());
  do {
    if (allows(next)) left.push_back(next);
  } while (Advance(sizes, next));
  Pairs pairs;
  while (static_cast<int>(chosen.size()) < count && !left.empty()) {
    size_t best = 0;
    double most = -1;
    for (size_t i = 0; i < left.size(); ++i) {
      const double worth = pairs.Worth(left[i]);
      if (worth > most) {
        most = worth;
        best = i;
      }
    }
    pairs.Add(left[best]);
    chosen.push_back(left[best]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return chosen;
}

}  // namespace attnd::bench
