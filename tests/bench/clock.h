#ifndef ATTND_TESTS_BENCH_CLOCK_H_
#define ATTND_TESTS_BENCH_CLOCK_H_

#include <chrono>

namespace attnd::bench {

// Since some moment, on a clock that never goes back.
inline double Seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// That `run` takes.
template <class Run>
double Time(Run run) {
  const double start = Seconds();
  run();
  return Seconds() - start;
}

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_CLOCK_H_
