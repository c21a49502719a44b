// Rows of f32, f16 and bf16 in and out of the kernels' f32 tiles. Compiled
// once per target.
#if defined(ATTND_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_ROWS_INL_H_
#undef ATTND_KERNELS_CPU_ROWS_INL_H_
#else
#define ATTND_KERNELS_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/attention.h"
#include "kernels/cpu/words-inl.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where it is emulated, releases of Highway differ in rounding, infinities and
// NaN.
#undef ATTND_F16_IN_HARDWARE
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
#define ATTND_F16_IN_HARDWARE 1
#else
#define ATTND_F16_IN_HARDWARE 0
#endif

// One vector of f32 from elements of each type.
struct FromF32 {
  using T = float;
  HWY_INLINE Vf operator()(const T* from) const {
    return hn::LoadU(F32(), from);
  }
};
struct FromF16 {
  using T = uint16_t;
  HWY_INLINE Vf operator()(const T* from) const {
#if ATTND_F16_IN_HARDWARE
    const hn::Rebind<T, F32> du;
    const hn::Rebind<hwy::float16_t, F32> dh;
    return hn::PromoteTo(F32(), hn::BitCast(dh, hn::LoadU(du, from)));
#else
    HWY_ALIGN float lanes[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] = F16ToFloat(from[i]);
    return hn::Load(F32(), lanes);
#endif
  }
};
struct FromBF16 {
  using T = uint16_t;
  HWY_INLINE Vf operator()(const T* from) const {
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<T, F32> dh;
    return hn::BitCast(
        F32(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, from))));
  }
};

// Elements of each type from one vector of f32, rounded to nearest even.
struct ToF32 {
  using T = float;
  HWY_INLINE void operator()(Vf v, T* to) const { hn::StoreU(v, F32(), to); }
};
struct ToF16 {
  using T = uint16_t;
  HWY_INLINE void operator()(Vf v, T* to) const {
#if ATTND_F16_IN_HARDWARE
    const hn::Rebind<T, F32> du;
    const hn::Rebind<hwy::float16_t, F32> dh;
    hn::StoreU(hn::BitCast(du, hn::DemoteTo(dh, v)), du, to);
#else
    HWY_ALIGN float lanes[kLanes];
    hn::Store(v, F32(), lanes);
    for (int64_t i = 0; i < kLanes; ++i) to[i] = FloatToF16(lanes[i]);
#endif
  }
};
struct ToBF16 {
  using T = uint16_t;
  HWY_INLINE void operator()(Vf v, T* to) const {
    const hn::RebindToSigned<F32> di;
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<T, F32> dh;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
    // Rounding could carry a NaN into infinity; a quiet bit cannot.
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
    const auto nan = hn::RebindMask(du, hn::IsNaN(v));
    const auto high = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
    hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, high)), dh, to);
  }
};

// `n` elements to f32, then zeros up to `padded`, a multiple of kLanes (the
// next one is always reached). Reads nothing beyond the n.
template <class From>
HWY_INLINE void LoadRowAs(const typename From::T* from, int64_t n,
                          int64_t padded, float* to) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(From()(from + i), d, to + i);
  if (i < n) {
    HWY_ALIGN typename From::T rest[kLanes] = {};
    std::memcpy(rest, from + i, (n - i) * sizeof(rest[0]));
    hn::StoreU(From()(rest), d, to + i);
    i += kLanes;
  }
  for (; i < padded; i += kLanes) hn::StoreU(hn::Zero(d), d, to + i);
}

HWY_INLINE void LoadRow(const void* from, DType dtype, int64_t n,
                        int64_t padded, float* to) {
  switch (dtype) {
    case DType::kF32:
      return LoadRowAs<FromF32>(static_cast<const float*>(from), n, padded, to);
    case DType::kF16:
      return LoadRowAs<FromF16>(static_cast<const uint16_t*>(from), n, padded,
                                to);
    case DType::kBF16:
      return LoadRowAs<FromBF16>(static_cast<const uint16_t*>(from), n, padded,
                                 to);
  }
}

// `n` elements of `from` times `factor`. `from` is readable up to the next
// multiple of kLanes; nothing beyond the n is written.
template <class To>
HWY_INLINE void StoreRowAs(const float* from, float factor, int64_t n,
                           typename To::T* to) {
  const F32 d;
  const Vf f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    To()(hn::Mul(hn::Load(d, from + i), f), to + i);
  }
  if (i < n) {
    HWY_ALIGN typename To::T rest[kLanes];
    To()(hn::Mul(hn::Load(d, from + i), f), rest);
    std::memcpy(to + i, rest, (n - i) * sizeof(rest[0]));
  }
}

HWY_INLINE void StoreRow(const float* from, float factor, int64_t n,
                         DType dtype, void* to) {
  switch (dtype) {
    case DType::kF32:
      return StoreRowAs<ToF32>(from, factor, n, static_cast<float*>(to));
    case DType::kF16:
      return StoreRowAs<ToF16>(from, factor, n, static_cast<uint16_t*>(to));
    case DType::kBF16:
      return StoreRowAs<ToBF16>(from, factor, n, static_cast<uint16_t*>(to));
  }
}

// to[c * to_stride + r] = from[r * from_stride + c] for r < 4, c < columns;
// columns a multiple of 4, everything aligned to 16 bytes.
HWY_INLINE void Transpose4(const float* from, int64_t from_stride,
                           int64_t columns, float* to, int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < 4; ++r) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
#else
  const hn::FixedTag<float, 4> d4;
  for (int64_t c = 0; c < columns; c += 4) {
    const auto r0 = hn::Load(d4, from + c);
    const auto r1 = hn::Load(d4, from + from_stride + c);
    const auto r2 = hn::Load(d4, from + 2 * from_stride + c);
    const auto r3 = hn::Load(d4, from + 3 * from_stride + c);
    const auto a = hn::InterleaveLower(d4, r0, r2);  // 00 20 01 21
    const auto b = hn::InterleaveLower(d4, r1, r3);  // 10 30 11 31
    const auto e = hn::InterleaveUpper(d4, r0, r2);  // 02 22 03 23
    const auto f = hn::InterleaveUpper(d4, r1, r3);  // 12 32 13 33
    hn::Store(hn::InterleaveLower(d4, a, b), d4, to + c * to_stride);
    hn::Store(hn::InterleaveUpper(d4, a, b), d4, to + (c + 1) * to_stride);
    hn::Store(hn::InterleaveLower(d4, e, f), d4, to + (c + 2) * to_stride);
    hn::Store(hn::InterleaveUpper(d4, e, f), d4, to + (c + 3) * to_stride);
  }
#endif
}

#if HWY_TARGET != HWY_SCALAR
// The blocks of four in `v` to rows of `to`.
template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, float* to, int64_t stride) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    hn::Store(v, d, to);
  } else {
    const hn::Half<D> half;
    StoreBlocks(half, hn::LowerHalf(half, v), to, stride);
    StoreBlocks(half, hn::UpperHalf(half, v),
                to + hn::MaxLanes(half) / 4 * stride, stride);
  }
}
#endif

// The same of kLanes columns in four vectors.
HWY_INLINE void TransposeVectors(Vf r0, Vf r1, Vf r2, Vf r3, float* to,
                                 [[maybe_unused]] int64_t to_stride) {
  const F32 d;
#if HWY_TARGET == HWY_SCALAR
  hn::Store(r0, d, to);
  hn::Store(r1, d, to + 1);
  hn::Store(r2, d, to + 2);
  hn::Store(r3, d, to + 3);
#else
  // In each block, as above.
  const auto a = hn::InterleaveLower(d, r0, r2);
  const auto b = hn::InterleaveLower(d, r1, r3);
  const auto e = hn::InterleaveUpper(d, r0, r2);
  const auto f = hn::InterleaveUpper(d, r1, r3);
  const int64_t next = 4 * to_stride;
  StoreBlocks(d, hn::InterleaveLower(d, a, b), to, next);
  StoreBlocks(d, hn::InterleaveUpper(d, a, b), to + to_stride, next);
  StoreBlocks(d, hn::InterleaveLower(d, e, f), to + 2 * to_stride, next);
  StoreBlocks(d, hn::InterleaveUpper(d, e, f), to + 3 * to_stride, next);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_ROWS_INL_H_
