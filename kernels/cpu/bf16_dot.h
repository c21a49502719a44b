#ifndef ATTND_KERNELS_CPU_BF16_DOT_H_
#define ATTND_KERNELS_CPU_BF16_DOT_H_

namespace attnd::cpu {

// Whether this processor multiplies pairs of bf16 (AVX512_BF16).
inline bool HasBF16Dot() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_BF16_DOT_H_
