#ifndef ATTND_TESTS_SERVICE_FUZZ_SCORES_H_
#define ATTND_TESTS_SERVICE_FUZZ_SCORES_H_

// One row of scores in double, and how far f32 may be from it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/reference/head.h"
#include "tests/service_fuzz/entries.h"

namespace attnd::fuzz {

inline constexpr double kF32Unit = 0x1p-24;     // half an ulp, relative
inline constexpr double kF32Tiny = 0x1p-149;    // the smallest subnormal
inline constexpr double kF32Normal = 0x1p-126;  // below, exp may give 0

// What a device's arithmetic owes: how many roundings of f32 a special function
// or a conversion of units takes.
struct Arithmetic {
  double roundings = 1;
  // Of LSE on its way from forward to backward, which P of backward follows.
  double lse = 1.25;
  // Of softcap's derivative, absolute. The papers' algorithms subtract tanh^2
  // from 1, and lose more.
  double slope = kF32Normal;
  // What a product must reach to count in a sum.
  double least = kF32Tiny;
  // The same of dQ / scale; where the scale is beyond 2^40, of dQ divided by
  // what is left of the scale without its power of two.
  double least_of_dq = kF32Tiny;
  // What P times softcap's derivative must reach, where dP is multiplied by
  // that product.
  double least_slope = 0;
  // Whether backward sums up q . k in other ways than forward has.
  bool other_sums = false;
  // Roundings that each addition of a sum adds to its error: all err in the
  // same direction where terms are equal.
  double addition = 0.25;
  // Whether P is a part of 1 when it is rounded to 16 bits, as naive's is; else
  // it is a part of the largest one.
  bool p_of_1 = false;
  // Whether a sum of bf16 products may do so (AVX512_BF16).
  bool takes_subnormals_as_0 = false;
  // Tensor cores do not normalize a subnormal factor: beside larger products it
  // loses bits as this least normal one would.
  double least_factor = 0;
  bool on_gpu = false;

  static Arithmetic Cpu() {
    return {.roundings = 1, .takes_subnormals_as_0 = true};
  }
  // 2^x within 2^-22. For 16-bit inputs scores are in units of log2, to and
  // from which LSE is rounded. dQ is summed up by memory, which adds nothing
  // below f32's normal numbers.
  static Arithmetic Gpu(DType dtype) {
    return {.roundings = 4,
            .lse = dtype == DType::kF32 ? 1.25 : 5,
            .least_of_dq = kF32Normal,
            .least_slope = kF32Tiny,
            .least_factor = dtype == DType::kF32 ? 0 : LeastNormal(dtype),
            .on_gpu = true};
  }

  // What a sum loses of a product x * y of inputs, or of a part of 1 and one,
  // beyond what it would of normal numbers.
  double Unnormalized(double x, double y = 1) const {
    const double least = least_factor;
    if (x == 0 || y == 0 || std::min(std::abs(x), std::abs(y)) >= least)
      return 0;
    return kF32Unit * std::max(std::abs(x), least) *
           std::max(std::abs(y), least);
  }

  // Relative error of a sum of n products, whose order and grouping are the
  // kernel's own.
  double Sum(int64_t n) const {
    return (4 * roundings + n * addition) * kF32Unit;
  }
};

// Row i of a head. Only columns that it sees are meaningful; where `p` is 0
// because a column is hidden, so is everything else.
struct ScoreRow {
  std::vector<int64_t> seen;         // columns
  std::vector<double> score;         // (E2)
  std::vector<double> error;         // of the score, absolute
  std::vector<double> x_error;       // of scale * q.k, absolute
  std::vector<double> slope;         // d score / d (scale q.k), (E16)
  std::vector<double> slope_error;   // absolute
  std::vector<double> p, high, low;  // (E5), and what f32 may make of it
  double lse = 0;                    // (E7); -inf if nothing is seen
  double lse_error = 0;

  ScoreRow(const Problem& problem, const reference::Head<double>& head,
           int64_t i, const Arithmetic& arithmetic);

 private:
  void FindScores(const Problem& problem, const reference::Head<double>& head,
                  int64_t i, const Arithmetic& arithmetic);
  void FindSoftmax(const Arithmetic& arithmetic);
};

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_SCORES_H_
