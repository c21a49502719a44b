// The one matrix product under every kernel here, on tiles that fit a core's
// caches. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_GEMM_INL_H_
#undef ATTND_KERNELS_CPU_GEMM_INL_H_
#else
#define ATTND_KERNELS_CPU_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/prefetcher.h"
#include "kernels/cpu/words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

// A tile of words in scratch memory: f32, or whatever lies in their place.
struct Tile {
  float* data = nullptr;
  int64_t stride = 0;

  float* row(int64_t r) const { return data + r * stride; }
  // From column c on, and from row r on.
  Tile from(int64_t c) const { return {data + c, stride}; }
  Tile from_row(int64_t r) const { return {row(r), stride}; }
};

// One that is only read.
struct ConstTile {
  const float* data = nullptr;
  int64_t stride = 0;

  ConstTile(const float* data, int64_t stride) : data(data), stride(stride) {}
  ConstTile(Tile tile) : data(tile.data), stride(tile.stride) {}  // NOLINT

  const float* row(int64_t r) const { return data + r * stride; }
  ConstTile from(int64_t c) const { return {data + c, stride}; }
};

// How A [m, k] lies in memory. Its elements are broadcast one at a time, so
// either order will do and A is never transposed.
enum class AOrder { kRowMajor, kColumnMajor };

// What happens to C.
struct GemmOutput {
  // Null: C = factor * A B. Else C = row_scale[i] * C + A B.
  const float* row_scale = nullptr;  // [m]
  bool accumulate = false;           // C += A B
  float factor = 1.0f;
  // C = factor * A B are scores (E1): infinities, which would subtract to NaN,
  // become the largest numbers.
  bool saturate = false;
  Prefetcher* prefetch = nullptr;  // gets a step for each register block
};

// One register block: kRows rows, kVectors vectors of C. Every element is one
// chain of multiply-adds over k in ascending order whatever the block's size,
// so a row's result never depends on its neighbours.
template <class Words, AOrder kOrder, int kRows, int kVectors>
HWY_INLINE void GemmBlock(int64_t k, const float* HWY_RESTRICT a, int64_t lda,
                          const float* HWY_RESTRICT b, int64_t ldb,
                          float* HWY_RESTRICT c, int64_t ldc,
                          const GemmOutput& out, int64_t row) {
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
        acc[r][v] = Words::MulAdd(av, bv[v], acc[r][v]);
      }
    }
  }
  const Vf fresh = hn::Set(d, out.factor);
  if (out.saturate) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        hn::Store(Saturate(d, hn::Mul(acc[r][v], fresh)), d,
                  c + r * ldc + v * kLanes);
      }
    }
    return;
  }
  // y = old * C + fresh * A B, which leaves the accumulators as they are where
  // a factor is 1.
  const bool keep = out.accumulate || out.row_scale != nullptr;
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
template <class Words, AOrder kOrder, int kVectors>
HWY_NOINLINE void GemmPanel(int64_t m, int64_t k, ConstTile a, ConstTile b,
                            Tile c, const GemmOutput& out) {
  constexpr int kRows = BlockRows(kVectors);
  const auto block = [&](auto rows, int64_t row) {
    if (out.prefetch != nullptr) out.prefetch->Step();
    GemmBlock<Words, kOrder, rows(), kVectors>(
        k, kOrder == AOrder::kRowMajor ? a.row(row) : a.data + row, a.stride,
        b.data, b.stride, c.row(row), c.stride, out, row);
  };
  int64_t row = 0;
  for (; row + kRows <= m; row += kRows) {
    block(std::integral_constant<int, kRows>(), row);
  }
  for (; row + 4 <= m; row += 4) block(std::integral_constant<int, 4>(), row);
  for (; row < m; ++row) block(std::integral_constant<int, 1>(), row);
}

// Calls run(column, vectors) for the panels of `width` columns, a multiple of
// kLanes, as even as possible: 5 vectors go as 3 and 2, not as 4 and 1.
template <class Run>
HWY_INLINE void ForEachPanel(int64_t width, Run run) {
  int64_t column = 0;
  for (int64_t left = width / kLanes; left > 0;) {
    const int64_t panels = (left + kMaxVectors - 1) / kMaxVectors;
    const int64_t vectors = (left + panels - 1) / panels;
    run(column, vectors);
    column += vectors * kLanes;
    left -= vectors;
  }
}

// Calls run(constant) for a panel's number of vectors.
template <class Run>
HWY_INLINE void WithVectors(int64_t vectors, Run run) {
  const auto with = [&](auto constant) {
    if constexpr (constant() <= kMaxVectors) run(constant);
  };
  switch (vectors) {
    case 4:
      return with(std::integral_constant<int, 4>());
    case 3:
      return with(std::integral_constant<int, 3>());
    case 2:
      return with(std::integral_constant<int, 2>());
    default:
      return with(std::integral_constant<int, 1>());
  }
}

// Register blocks, and with them prefetcher's steps, of a product.
HWY_INLINE int64_t GemmBlocks(int64_t m, int64_t n) {
  const int64_t panels = (n / kLanes + kMaxVectors - 1) / kMaxVectors;
  return panels * (m / BlockRows(kMaxVectors) + 1);
}

// C [m, n] from A [m, k words] in kOrder and B [k words, n]; C row-major. n is
// a multiple of kLanes; rows of B and C are aligned to 64 bytes.
template <class Words, AOrder kOrder>
HWY_INLINE void Gemm(int64_t m, int64_t n, int64_t k, ConstTile a, ConstTile b,
                     Tile c, const GemmOutput& out) {
  ForEachPanel(n, [&](int64_t column, int64_t vectors) {
    WithVectors(vectors, [&](auto width) {
      GemmPanel<Words, kOrder, width()>(m, k, a, b.from(column), c.from(column),
                                        out);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_GEMM_INL_H_
