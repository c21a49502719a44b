// The one matrix product under every kernel here, on f32 tiles that fit a
// core's caches. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_GEMM_INL_H_
#undef ATTND_KERNELS_CPU_GEMM_INL_H_
#else
#define ATTND_KERNELS_CPU_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attnd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Vf = hn::Vec<F32>;
inline constexpr int64_t kLanes = hn::MaxLanes(F32());

// How the accumulators of a block of C fit the registers: rows by vectors.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
inline constexpr int kMaxVectors = 4;  // of 32 registers
constexpr int BlockRows(int vectors) {
  constexpr int kRows[] = {0, 12, 12, 8, 6};
  return kRows[vectors];
}
#else
inline constexpr int kMaxVectors = 2;  // of 16 registers
constexpr int BlockRows(int vectors) { return vectors == 1 ? 8 : 6; }
#endif

// How A [m, k] lies in memory. Its elements are broadcast one at a time, so
// either order will do and A is never transposed.
enum class AOrder { kRowMajor, kColumnMajor };

// What happens to C.
struct GemmOutput {
  // Null: C = factor * A B. Else C = row_scale[i] * C + A B.
  const float* row_scale = nullptr;  // [m]
  bool accumulate = false;           // C += A B
  float factor = 1.0f;
};

// One register block: kRows rows, kVectors vectors of C. Every element is one
// chain of multiply-adds over k in ascending order whatever the block's size,
// so a row's result never depends on its neighbours.
template <AOrder kOrder, int kRows, int kVectors>
HWY_INLINE void GemmBlock(int64_t k, const float* HWY_RESTRICT a, int64_t lda,
                          const float* HWY_RESTRICT b, int64_t ldb,
                          float* HWY_RESTRICT c, int64_t ldc,
                          const GemmOutput out, int64_t row) {
  const F32 d;
  Vf acc[kRows][kVectors];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < k; ++i) {
    Vf bv[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      bv[v] = hn::Load(d, b + i * ldb + v * kLanes);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const float* at =
          kOrder == AOrder::kRowMajor ? a + r * lda + i : a + i * lda + r;
      const Vf av = hn::Set(d, *at);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::MulAdd(av, bv[v], acc[r][v]);
      }
    }
  }
  // y = old * C + fresh * A B, which leaves the accumulators as they are where
  // a factor is 1.
  const bool keep = out.accumulate || out.row_scale != nullptr;
  const Vf fresh = hn::Set(d, out.factor);
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    float* to = c + r * ldc;
    const Vf old = hn::Set(d, out.row_scale ? out.row_scale[row + r] : 1.0f);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const Vf y = hn::Mul(acc[r][v], fresh);
      hn::Store(keep ? hn::MulAdd(hn::Load(d, to + v * kLanes), old, y) : y, d,
                to + v * kLanes);
    }
  }
}

// All rows of one panel of kVectors vectors: B's panel stays in the L1 cache.
template <AOrder kOrder, int kVectors>
HWY_NOINLINE void GemmPanel(int64_t m, int64_t k, const float* a, int64_t lda,
                            const float* b, int64_t ldb, float* c, int64_t ldc,
                            const GemmOutput& out) {
  constexpr int kRows = BlockRows(kVectors);
  const int64_t a_step = kOrder == AOrder::kRowMajor ? lda : 1;
  int64_t row = 0;
  for (; row + kRows <= m; row += kRows) {
    GemmBlock<kOrder, kRows, kVectors>(k, a + row * a_step, lda, b, ldb,
                                       c + row * ldc, ldc, out, row);
  }
  for (; row + 4 <= m; row += 4) {
    GemmBlock<kOrder, 4, kVectors>(k, a + row * a_step, lda, b, ldb,
                                   c + row * ldc, ldc, out, row);
  }
  for (; row < m; ++row) {
    GemmBlock<kOrder, 1, kVectors>(k, a + row * a_step, lda, b, ldb,
                                   c + row * ldc, ldc, out, row);
  }
}

// C [m, n] from A [m, k] in kOrder and B [k, n], B and C row-major. n is a
// multiple of kLanes; rows of B and C are aligned to 64 bytes.
template <AOrder kOrder>
HWY_INLINE void Gemm(int64_t m, int64_t n, int64_t k, const float* a,
                     int64_t lda, const float* b, int64_t ldb, float* c,
                     int64_t ldc, const GemmOutput& out) {
  int64_t vectors = n / kLanes;
  while (vectors > 0) {
    // As even as possible: 5 vectors go as 3 and 2, not as 4 and 1.
    const int64_t panels = (vectors + kMaxVectors - 1) / kMaxVectors;
    const int64_t width = (vectors + panels - 1) / panels;
    switch (width) {
      case 4:
        if constexpr (kMaxVectors >= 4) {
          GemmPanel<kOrder, 4>(m, k, a, lda, b, ldb, c, ldc, out);
        }
        break;
      case 3:
        if constexpr (kMaxVectors >= 3) {
          GemmPanel<kOrder, 3>(m, k, a, lda, b, ldb, c, ldc, out);
        }
        break;
      case 2:
        GemmPanel<kOrder, 2>(m, k, a, lda, b, ldb, c, ldc, out);
        break;
      default:
        GemmPanel<kOrder, 1>(m, k, a, lda, b, ldb, c, ldc, out);
        break;
    }
    b += width * kLanes;
    c += width * kLanes;
    vectors -= width;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_GEMM_INL_H_
