#ifndef ATTND_SERVER_HTTP2_BUDGET_H_
#define ATTND_SERVER_HTTP2_BUDGET_H_

#include <algorithm>

#include "absl/time/time.h"

namespace attnd::server::http2 {

// How much of something a peer may do: so much at once, so much a second from
// then on, and what it earns (a token bucket). Not thread-safe.
class Budget {
 public:
  // A peer that has earned it may save up to `most`.
  constexpr Budget(double at_once, double per_second, double most)
      : most_(most), per_second_(per_second), left_(at_once) {}
  constexpr Budget(double at_once, double per_second)
      : Budget(at_once, per_second, at_once) {}

  // False: there is not enough left for one more. `now` is MonotonicNow().
  bool Take(absl::Time now) {
    if (filled_ == absl::InfinitePast()) filled_ = now;
    if (now > filled_) {
      left_ = std::min(
          most_, left_ + absl::ToDoubleSeconds(now - filled_) * per_second_);
      filled_ = now;
    }
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  // The peer has earned some more.
  void Earn(double amount) { left_ = std::min(most_, left_ + amount); }

 private:
  double most_;
  double per_second_;
  double left_;
  absl::Time filled_ = absl::InfinitePast();  // until it is first asked
};

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_BUDGET_H_
