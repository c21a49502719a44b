// Sum and Dot of a member against float64, on a GPU.

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "tests/kernels/cuda/one_member.h"

namespace attnd::cuda {
namespace {

using Bytes = OneMemberTest::Bytes;

class CudaSumsTest : public OneMemberTest {
 protected:
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
  }
  // Elements in [-1, 1] or so.
  Bytes Elements(DType dtype, int64_t count) {
    Bytes bytes(count * SizeOf(dtype));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) {
      StoreElement(bytes.data(), dtype, i, normal(random_));
    }
    return bytes;
  }

  std::mt19937_64 random_{11};
};

// Half of the last place of a value of such a type.
double HalfUlp(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return std::ldexp(1, -24);
    case DType::kF16:
      return std::ldexp(1, -11);
    case DType::kBF16:
      return std::ldexp(1, -8);
  }
  return 0;
}

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST_F(CudaSumsTest, SumsAreRightForAnyShape) {
  for (int draw = 0; draw < 240; ++draw) {
    const DType dtype = kDTypes[draw % 3];
    const bool aligned = draw % 4 != 0;
    const auto place = [&](int64_t n) { return aligned ? (n + 7) / 8 * 8 : n; };
    const int terms = 1 + static_cast<int>(draw < 200 ? Below(9) : Below(64));
    const int64_t columns = 1 + Below(draw % 5 == 0 ? 5000 : 130);
    const int64_t rows = 1 + Below(draw % 7 == 0 ? 70'000 / columns + 1 : 40);
    std::vector<Bytes> x;
    std::vector<BlockSum::Term> on_device;
    std::vector<int64_t> first;
    for (int t = 0; t < terms; ++t) {
      const int64_t pitch = place(columns + Below(2) * Below(20));
      first.push_back(place(Below(20)));
      x.push_back(Elements(DType::kF32, first[t] + pitch * rows));
      on_device.push_back(
          {reinterpret_cast<const float*>(OnDevice(x[t])) + first[t], pitch});
    }
    const int64_t to_pitch = place(columns + Below(2) * Below(20));
    const int64_t to_first = place(Below(20));
    Bytes expected((to_first + to_pitch * rows) * SizeOf(dtype),
                   std::byte{0x5A});
    std::byte* to = OnDevice(expected);
    BeforeKernels();
    ASSERT_TRUE(member_
                    ->Sum({.terms = on_device,
                           .to = to + to_first * SizeOf(dtype),
                           .dtype = dtype,
                           .to_pitch = to_pitch,
                           .row_elements = columns,
                           .rows = rows})
                    .ok());
    const Bytes got = Fetch(to, expected.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        double exact = 0, size = 0;
        float sum = 0;
        for (int t = 0; t < terms; ++t) {
          const float term =
              LoadElement(x[t].data(), DType::kF32,
                          first[t] + row * on_device[t].pitch + i);
          exact += term;
          size += std::abs(term);
          sum = t == 0 ? term : sum + term;
        }
        const int64_t at = to_first + row * to_pitch + i;
        const double value = LoadElement(got.data(), dtype, at);
        ASSERT_LE(std::abs(value - exact),
                  HalfUlp(dtype) * std::abs(exact) * 1.01 +
                      terms * size * std::ldexp(1, -24) + std::ldexp(1, -25))
            << draw << ": " << row << ", " << i;
        StoreElement(expected.data(), dtype, at, sum);
      }
    }
    // The same order gives the same bits, and nothing lies beside them.
    ASSERT_TRUE(got == expected)
        << draw << ": " << rows << " x " << columns << " of " << terms;
  }
}

TEST_F(CudaSumsTest, ASumOfNothingIsZero) {
  const Bytes poison(400, std::byte{0x5A});
  std::byte* to = OnDevice(poison);
  BeforeKernels();
  ASSERT_TRUE(member_
                  ->Sum({.terms = {},
                         .to = to,
                         .to_pitch = 10,
                         .row_elements = 10,
                         .rows = 10})
                  .ok());
  EXPECT_TRUE(member_->Sum({}).ok());
  EXPECT_TRUE(Fetch(to, 400) == Bytes(400));
}

struct DotShape {
  DType a = DType::kF32, b = DType::kF32;
  int64_t rows = 0, heads = 0, dim = 0;
};

// Rows of a tensor with gaps between them.
struct Rows {
  int64_t first = 0;
  ConstTensorView view;
  int64_t end = 0;

  int64_t At(int64_t row, int64_t head, int64_t d) const {
    return first + row * view.token_stride + head * view.head_stride + d;
  }
};
Rows Lay(const DotShape& shape, DType dtype, bool heads_first, int64_t gap) {
  Rows rows;
  rows.first = gap;
  rows.view.dtype = dtype;
  const int64_t dim = shape.dim + gap;
  rows.view.token_stride = heads_first ? dim : dim * shape.heads;
  rows.view.head_stride = heads_first ? dim * shape.rows : dim;
  rows.end = gap + dim * shape.heads * shape.rows;
  return rows;
}

TEST_F(CudaSumsTest, DotsAreRightForAnyShape) {
  constexpr std::pair<DType, DType> kTypes[] = {{DType::kF32, DType::kF32},
                                                {DType::kF16, DType::kF16},
                                                {DType::kBF16, DType::kBF16},
                                                {DType::kF16, DType::kF32},
                                                {DType::kBF16, DType::kF32}};
  int draw = 0;
  for (int64_t dim : {1, 3, 7, 8, 9, 16, 40, 64, 65, 72, 80, 96, 100, 128, 129,
                      192, 200, 255, 256}) {
    for (const auto& [a_type, b_type] : kTypes) {
      ++draw;
      const DotShape shape{a_type, b_type, 1 + Below(300), 1 + Below(6), dim};
      // Gaps that keep rows aligned, and such that do not.
      const int64_t gap = (draw % 3 == 0) ? 0 : (draw % 3 == 1) ? 8 : 3;
      Rows a = Lay(shape, a_type, draw % 2 == 0, gap);
      Rows b = Lay(shape, b_type, draw % 5 < 2, draw % 4 == 0 ? 1 : gap);
      const Bytes x = Elements(a_type, a.end), y = Elements(b_type, b.end);
      a.view.data = OnDevice(x) + a.first * SizeOf(a_type);
      b.view.data = OnDevice(y) + b.first * SizeOf(b_type);
      const int64_t head_stride = shape.rows + Below(5);
      Bytes expected(head_stride * shape.heads * 4, std::byte{0x5A});
      std::byte* to = OnDevice(expected);
      BeforeKernels();
      ASSERT_TRUE(
          member_
              ->Dot({.a = a.view,
                     .b = b.view,
                     .to = {reinterpret_cast<float*>(to), 0, head_stride},
                     .rows = shape.rows,
                     .heads = shape.heads,
                     .dim = dim})
              .ok());
      const Bytes got = Fetch(to, expected.size());
      for (int64_t head = 0; head < shape.heads; ++head) {
        for (int64_t row = 0; row < shape.rows; ++row) {
          double exact = 0, size = 0;
          for (int64_t d = 0; d < dim; ++d) {
            const double product =
                double{LoadElement(x.data(), a_type, a.At(row, head, d))} *
                LoadElement(y.data(), b_type, b.At(row, head, d));
            exact += product;
            size += std::abs(product);
          }
          const int64_t at = head * head_stride + row;
          const float value = LoadElement(got.data(), DType::kF32, at);
          ASSERT_LE(std::abs(value - exact), 16 * size * std::ldexp(1, -24))
              << dim << ": " << head << ", " << row;
          StoreElement(expected.data(), DType::kF32, at, value);
        }
      }
      ASSERT_TRUE(got == expected) << "written beside the dots, " << dim;
    }
  }
}

TEST_F(CudaSumsTest, DotsOfOtherTypesAreRefused) {
  RowDots dots;
  dots.rows = dots.heads = 1;
  dots.dim = 64;
  dots.a.dtype = DType::kF32;
  dots.b.dtype = DType::kF16;
  EXPECT_FALSE(member_->Dot(dots).ok());
  dots.b.dtype = DType::kF32;
  dots.dim = 257;
  EXPECT_FALSE(member_->Dot(dots).ok());
  dots.rows = 0;
  EXPECT_TRUE(member_->Dot(dots).ok());
}

}  // namespace
}  // namespace attnd::cuda
