// exp and tanh of f32 vectors. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_MATH_INL_H_
#undef ATTND_KERNELS_CPU_MATH_INL_H_
#else
#define ATTND_KERNELS_CPU_MATH_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The smaller and the larger of a bound and x; NaN stays NaN. Highway leaves
// open what becomes of it; x86 gives the second operand.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AtMost([[maybe_unused]] D d, V most, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE2
  return hn::Min(most, x);
#else
  return hn::IfThenElse(hn::Gt(x, most), most, x);
#endif
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AtLeast([[maybe_unused]] D d, V least, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE2
  return hn::Max(least, x);
#else
  return hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
}

// What left f32's range becomes the largest number of its sign.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Saturate(D d, V x) {
  const V most = hn::Set(d, std::numeric_limits<float>::max());
  return AtLeast(d, hn::Neg(most), AtMost(d, most, x));
}

// x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer
// and leaves n in the low bits of `shifted`.
template <class V>
struct ReducedExp {
  V shifted;  // 1.5 * 2^23 + n
  V expm1;    // exp(r) - 1
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE ReducedExp<V> ReduceExp(D d, V x) {
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first short enough that n times it is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860682e-6f), r);
  // exp(r) - 1 - r over r^2, interpolated at Chebyshev's nodes: the result's
  // relative error is 1e-8.
  V p = hn::MulAdd(hn::Set(d, 0.00139261759f), r, hn::Set(d, 0.00836317334f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416665561f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166665778f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  return {shifted, hn::MulAdd(hn::Mul(p, r), r, r)};
}

// v * 2^n, for results that are normal numbers.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ScaleByPowerOf2(D d, V v, V shifted) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::Add(hn::BitCast(di, v),
                                hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// e^x for x <= 0 or NaN, which stays NaN, as 2^(x log2 e), whose reduction
// takes no multiplication. The relative error is within 2.2e-7 + 8e-8 |x|,
// where x itself, a difference of scores, is off by up to 6e-8 |x|. Results
// below the smallest normal number are 0, so -inf gives 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  const V magic = hn::Set(d, 12582912.0f);
  const V y = hn::Mul(x, hn::Set(d, 1.44269504f));
  const V shifted = hn::Add(y, magic);
  const V r = hn::Sub(y, hn::Sub(shifted, magic));  // exact
  // (2^r - 1) / r by Remez, 2^r to 9.2e-8.
  V p = hn::MulAdd(hn::Set(d, 0.00132647273f), r, hn::Set(d, 0.00967151299f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555073358f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240222424f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147004f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365447f)),
                            ScaleByPowerOf2(d, p, shifted));
}

template <class V>
struct TanhResult {
  V tanh;
  V derivative;  // 1 - tanh^2, without its cancellation
};

// With t = exp(-2|x|) - 1: tanh |x| = -t / (t + 2), 1 - tanh^2 = 4 (t + 1) /
// (t + 2)^2. Both to a few ulp, for small x too.
template <class D, class V = hn::Vec<D>>
HWY_INLINE TanhResult<V> Tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V two = hn::Set(d, 2.0f);
  // At 52 the derivative has left what f32 holds.
  const V z =
      hn::Max(hn::Mul(hn::Abs(x), hn::Set(d, -2.0f)), hn::Set(d, -104.0f));
  const ReducedExp<V> e = ReduceExp(d, z);
  // 2^n by two normal numbers: the product may be subnormal.
  const hn::RebindToSigned<D> di;
  const auto n = hn::Sub(hn::BitCast(di, e.shifted),
                         hn::BitCast(di, hn::Set(d, 12582912.0f)));
  const auto half = hn::ShiftRight<1>(n);
  const auto power_of = [&](auto exponent) {
    return hn::BitCast(d,
                       hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
  };
  const V first = power_of(half), second = power_of(hn::Sub(n, half));
  const V power = hn::Mul(first, second);
  const V t = hn::MulAdd(power, e.expm1, hn::Sub(power, one));
  const V exp = hn::Mul(hn::MulAdd(first, e.expm1, first), second);
  const V inverse = hn::Div(one, hn::Add(t, two));
  const V tanh = hn::Div(hn::Neg(t), hn::Add(t, two));
  const V derivative =
      hn::Mul(hn::Mul(hn::Mul(hn::Set(d, 4.0f), exp), inverse), inverse);
  // Max may drop a NaN: it comes back here.
  const auto nan = hn::IsNaN(x);
  return {hn::IfThenElse(nan, x, hn::CopySign(tanh, x)),
          hn::IfThenElse(nan, x, derivative)};
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_MATH_INL_H_
