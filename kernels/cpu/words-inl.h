// Vectors, and what a 32-bit word of a tile may hold. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_WORDS_INL_H_
#undef ATTND_KERNELS_CPU_WORDS_INL_H_
#else
#define ATTND_KERNELS_CPU_WORDS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

// GCC and Clang name the instruction's feature; the assembler knows it too.
#undef ATTND_BF16_DOT
#if HWY_ARCH_X86_64 && HWY_TARGET == HWY_AVX3 && defined(__GNUC__)
#define ATTND_BF16_DOT 1
#else
#define ATTND_BF16_DOT 0
#endif

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Vf = hn::Vec<F32>;
inline constexpr int64_t kLanes = hn::MaxLanes(F32());

// One f32 to a word.
struct F32Words {
  static constexpr int64_t kElements = 1;
  static HWY_INLINE Vf MulAdd(Vf a, Vf b, Vf acc) {
    return hn::MulAdd(a, b, acc);
  }
};

#if ATTND_BF16_DOT

// Two bf16 to a word, neighbours along the product's k, the first in the low
// half. The instructions take subnormal numbers as 0, which f32 keeps.
struct BF16Words {
  static constexpr int64_t kElements = 2;

  // acc + a.first * b.first + a.second * b.second
  static HWY_INLINE Vf MulAdd(Vf a, Vf b, Vf acc) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(acc.raw) : "v"(a.raw), "v"(b.raw));
    return acc;
  }
  // Rounded to nearest even: 16 of `second` above 16 of `first`.
  static HWY_INLINE Vf Concatenate(Vf first, Vf second) {
    Vf both;
    asm("vcvtne2ps2bf16 %2, %1, %0"
        : "=v"(both.raw)
        : "v"(second.raw), "v"(first.raw));
    return both;
  }
  // (first[i], second[i]) in word i.
  static HWY_INLINE Vf Pair(Vf first, Vf second) {
    HWY_ALIGN static constexpr uint16_t kInterleaved[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return Vf{_mm512_castsi512_ps(_mm512_permutexvar_epi16(
        _mm512_load_si512(kInterleaved),
        _mm512_castps_si512(Concatenate(first, second).raw)))};
  }
  // One vector to 16 elements of each of two rows.
  static HWY_INLINE void Store(Vf first, Vf second, uint16_t* to_first,
                               uint16_t* to_second) {
    const __m512i both = _mm512_castps_si512(Concatenate(first, second).raw);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_first),
                        _mm512_castsi512_si256(both));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_second),
                        _mm512_extracti64x4_epi64(both, 1));
  }
};

#endif  // ATTND_BF16_DOT

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_WORDS_INL_H_
