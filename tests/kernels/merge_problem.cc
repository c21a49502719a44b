#include "tests/kernels/merge_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "tests/kernels/accuracy.h"

namespace attnd::testing {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}

  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Chance(double p) { return std::bernoulli_distribution(p)(random_); }
  float Normal() { return normal_(random_); }
  template <class T, size_t kCount>
  T Of(const T (&all)[kCount]) {
    return all[Int(0, kCount - 1)];
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

// Rows of `dim` elements, at multiples of 16 bytes if they are `aligned`.
PlacedRows Place(DType dtype, int64_t rows, int64_t heads, int64_t dim,
                 bool aligned, Random& random) {
  const auto up = [&](int64_t n) { return aligned ? (n + 7) / 8 * 8 : n; };
  PlacedRows placed;
  placed.dtype = dtype;
  placed.first = up(random.Int(0, 9));
  const int64_t row = up(dim + (random.Chance(0.5) ? random.Int(0, 9) : 0));
  const bool heads_first = random.Chance(0.5);
  placed.token_stride = heads_first ? row : row * heads;
  placed.head_stride = heads_first ? row * rows : row;
  placed.memory.resize((placed.first + row * rows * heads) * SizeOf(dtype),
                       std::byte{0x5A});
  return placed;
}

// LSE of each term of a row.
void DrawLse(Random& random, std::vector<float>& lse) {
  constexpr float kSpreads[] = {0, 1, 10, 1e4, 1e30};
  constexpr float kMeans[] = {0, 0, -1e4, 3e38, -3e38};
  const float spread = random.Of(kSpreads), mean = random.Of(kMeans);
  const double nothing = random.Chance(0.1) ? 1 : random.Chance(0.5) ? 0.3 : 0;
  for (float& one : lse) {
    one = std::clamp(mean + spread * random.Normal(), -3e38f, 3e38f);
    if (random.Chance(nothing)) one = kNothing;
    if (random.Chance(0.01)) one = kNan;
  }
}

}  // namespace

MergeProblem::MergeProblem(uint32_t seed) {
  Random random(seed);
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  constexpr int64_t kDims[] = {1, 3, 8, 40, 64, 65, 72, 128, 200, 255, 256};
  const int64_t terms =
      random.Chance(0.1) ? random.Int(0, 64) : random.Int(0, 8);
  rows_ = random.Chance(0.5) ? random.Int(1, 3) : random.Int(1, 150);
  heads_ = random.Int(1, 9);
  dim_ = random.Of(kDims);
  has_o_ = random.Chance(0.9);
  has_lse_ = !has_o_ || random.Chance(0.9);
  const bool aligned = random.Chance(0.7);
  to_o_ = Place(random.Of(kTypes), rows_, heads_, dim_, aligned, random);
  to_lse_ = Place(DType::kF32, 1, heads_, rows_, false, random);
  for (int64_t t = 0; t < terms; ++t) {
    o_.push_back(Place(DType::kF32, rows_, heads_, dim_, aligned, random));
    lse_.push_back(Place(DType::kF32, 1, heads_, rows_, false, random));
  }
  std::vector<float> lse(terms);
  for (int64_t head = 0; head < heads_; ++head) {
    for (int64_t row = 0; row < rows_; ++row) {
      DrawLse(random, lse);
      // As large as f32 goes, where the result is f32.
      const bool large = to_o_.dtype == DType::kF32 && random.Chance(0.1);
      for (int64_t t = 0; t < terms; ++t) {
        StoreElement(lse_[t].memory.data(), DType::kF32,
                     lse_[t].At(0, head) + row, lse[t]);
        for (int64_t d = 0; d < dim_; ++d) {
          const float value = large ? 3e38f : random.Normal();
          StoreElement(o_[t].memory.data(), DType::kF32,
                       o_[t].At(row, head) + d,
                       lse[t] == kNothing ? kNan : value);
        }
      }
    }
  }
}

std::string MergeProblem::Describe() const {
  return absl::StrCat(o_.size(), " terms of ", rows_, " rows, ", heads_,
                      " heads, dim ", dim_, ", type ",
                      static_cast<int>(to_o_.dtype), has_o_ ? "" : ", no O",
                      has_lse_ ? "" : ", no LSE");
}

void MergeProblem::Merge(
    const std::function<std::byte*(const PlacedRows&)>& memory_of,
    const std::function<void(const RowMerges&)>& merge) const {
  const auto at = [&](const PlacedRows& rows) {
    return memory_of(rows) + rows.first * SizeOf(rows.dtype);
  };
  std::vector<RowState> terms;
  for (size_t t = 0; t < o_.size(); ++t) {
    RowState& term = terms.emplace_back();
    if (has_o_) {
      term.o = {at(o_[t]), DType::kF32, 0, o_[t].token_stride,
                o_[t].head_stride};
    }
    term.lse = {reinterpret_cast<const float*>(at(lse_[t])), 0,
                lse_[t].head_stride};
  }
  RowMerges merges;
  merges.terms = terms;
  if (has_o_) {
    merges.o = {at(to_o_), to_o_.dtype, 0, to_o_.token_stride,
                to_o_.head_stride};
  }
  if (has_lse_) {
    merges.lse = {reinterpret_cast<float*>(at(to_lse_)), 0,
                  to_lse_.head_stride};
  }
  merges.rows = rows_;
  merges.heads = heads_;
  merges.dim = dim_;
  merge(merges);
}

// (E19) in double.
MergeProblem::Row MergeProblem::MergedLse(int64_t row, int64_t head) const {
  Row merged;
  double most = kNothing, sum = 0;
  std::vector<double> lse;
  for (const PlacedRows& term : lse_) {
    lse.push_back(
        LoadElement(term.memory.data(), DType::kF32, term.At(0, head) + row));
    most = std::max(most, std::isnan(lse.back()) ? kNothing : lse.back());
  }
  for (const double one : lse) {
    merged.weights.push_back(one == kNothing ? 0 : std::exp(one - most));
    sum += merged.weights.back();
  }
  for (double& weight : merged.weights) {
    if (weight != 0) weight /= sum;
  }
  merged.lse = sum == 0 ? kNothing : most + std::log(sum);
  return merged;
}

::testing::AssertionResult MergeProblem::IsRowRight(
    const std::vector<std::byte>& got, int64_t row, int64_t head) const {
  const Row merged = MergedLse(row, head);
  const double terms = static_cast<double>(o_.size());
  for (int64_t d = 0; d < dim_; ++d) {
    double exact = 0, size = 0;
    for (size_t t = 0; t < o_.size(); ++t) {
      // What has seen nothing does not count, whatever it holds.
      if (merged.weights[t] == 0) continue;
      const double value = LoadElement(o_[t].memory.data(), DType::kF32,
                                       o_[t].At(row, head) + d);
      exact += merged.weights[t] * value;
      size += std::abs(merged.weights[t] * value);
    }
    const double value =
        LoadElement(got.data(), to_o_.dtype, to_o_.At(row, head) + d);
    // Exponents that are rounded, a GPU's exp, the terms, and the result.
    const double most = RoundingUnit(to_o_.dtype) * std::abs(exact) +
                        (terms + 8) * size * std::ldexp(1, -23) +
                        std::ldexp(1, -25);
    if (std::isnan(exact) ? std::isnan(value)
                          : std::abs(value - exact) <= most) {
      continue;
    }
    return ::testing::AssertionFailure()
           << "O of row " << row << " head " << head << " column " << d << ": "
           << value << ", not " << exact;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult MergeProblem::IsRight(
    const std::vector<std::byte>& o, const std::vector<std::byte>& lse) const {
  std::vector<std::byte> expected_o = to_o_.memory,
                         expected_lse = to_lse_.memory;
  const auto copy = [](const std::vector<std::byte>& from, int64_t first,
                       int64_t bytes, std::vector<std::byte>& to) {
    std::memcpy(&to[first], &from[first], bytes);
  };
  for (int64_t head = 0; head < heads_; ++head) {
    for (int64_t row = 0; row < rows_; ++row) {
      if (has_o_) {
        auto right = IsRowRight(o, row, head);
        if (!right) return right;
        const int64_t size = SizeOf(to_o_.dtype);
        copy(o, to_o_.At(row, head) * size, dim_ * size, expected_o);
      }
      if (!has_lse_) continue;
      const int64_t at = to_lse_.At(0, head) + row;
      const double exact = MergedLse(row, head).lse;
      const double value = LoadElement(lse.data(), DType::kF32, at);
      const double most =
          (static_cast<double>(o_.size()) + 4 + std::abs(exact)) *
          std::ldexp(1, -23);
      const bool right = std::isnan(exact)   ? std::isnan(value)
                         : std::isinf(exact) ? value == exact
                                             : std::abs(value - exact) <= most;
      if (!right) {
        return ::testing::AssertionFailure()
               << "LSE of row " << row << " head " << head << ": " << value
               << ", not " << exact;
      }
      copy(lse, at * 4, 4, expected_lse);
    }
  }
  if (o != expected_o || lse != expected_lse) {
    return ::testing::AssertionFailure() << "written beside the rows";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace attnd::testing
