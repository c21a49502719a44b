#ifndef ATTND_TESTS_EMULATION_DEVICE_H_
#define ATTND_TESTS_EMULATION_DEVICE_H_

// CUDA's language for a compiler of C++: included before all else where a
// kernel is compiled. What kernels do not use is not here.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <vector_functions.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tests/emulation/block_barrier.h"
#include "tests/emulation/device_variables.h"
#include "tests/emulation/scheduler.h"
#include "tests/emulation/warp.h"

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.

// CUDA's headers have these for compilers that know no kernels, but not empty.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __noinline__
#define __noinline__
// Of the one block that is resident, see launch.h.
#undef __shared__
#define __shared__ static

inline void __syncthreads() { attnd::emulation::SyncBlock(); }
inline int __syncthreads_or(int predicate) {
  return attnd::emulation::SyncBlockOr(predicate != 0);
}
// All masks are full.
inline void __syncwarp() { attnd::emulation::SyncWarp(); }
inline unsigned __ballot_sync(unsigned, bool x) {
  return attnd::emulation::Ballot(x);
}
inline bool __any_sync(unsigned, bool x) {
  return attnd::emulation::Ballot(x) != 0;
}
inline bool __all_sync(unsigned, bool x) {
  return attnd::emulation::Ballot(x) == 0xffffffff;
}
template <class T>
T __shfl_sync(unsigned, T x, int lane) {
  return attnd::emulation::Shuffle("__shfl_sync", x, lane);
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  return attnd::emulation::Shuffle("__shfl_xor_sync", x, threadIdx.x ^ mask);
}

// Memory is in order as it is.
inline void __threadfence() {}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
inline unsigned atomicInc(unsigned* to, unsigned most) {
  const unsigned before = *to;
  *to = before >= most ? 0 : before + 1;
  attnd::emulation::MaybeYield();
  return before;
}

inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return y < x ? y : x;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return x < y ? y : x;
}

// NOLINTEND(bugprone-reserved-identifier)

#endif  // ATTND_TESTS_EMULATION_DEVICE_H_
