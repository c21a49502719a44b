#ifndef ATTND_TESTS_BENCH_CPU_MACHINE_PEERS_H_
#define ATTND_TESTS_BENCH_CPU_MACHINE_PEERS_H_

// What the machine can do: how fast it multiplies and how fast it reads.

#include <vector>

#include "kernels/attention.h"

namespace attnd::bench {

// OpenBLAS's product of two square f32 matrices.
class Sgemm {
 public:
  explicit Sgemm(int threads);
  double Run();  // seconds

  static constexpr int kSize = 2048;
  static constexpr double kFlops = 2.0 * kSize * kSize * kSize;

 private:
  std::vector<float> a_, b_, c_;
};

// Seconds in which `threads` add up all of the view's memory.
double SumSeconds(const ConstTensorView& view, double bytes, int threads);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_CPU_MACHINE_PEERS_H_
