#ifndef ATTND_TESTS_BENCH_CPU_FMA_PEAK_H_
#define ATTND_TESTS_BENCH_CPU_FMA_PEAK_H_

namespace attnd::bench {

// The f32 multiply-adds of kFmaFlops FLOPs by each of `threads`, from registers
// alone, with the instructions that the kernels use: what no product passes.
// Returns seconds.
double FmaPeakSeconds(int threads);

inline constexpr double kFmaFlops = 1e9;

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_CPU_FMA_PEAK_H_
