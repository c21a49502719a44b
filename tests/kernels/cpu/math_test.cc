#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/cpu/math_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include "hwy/highway.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

float ExpNonPositive1(float x) {
  return hn::GetLane(ExpNonPositive(F32(), hn::Set(F32(), x)));
}
float Tanh1(float x) {
  return hn::GetLane(Tanh(F32(), hn::Set(F32(), x)).tanh);
}
float Saturate1(float x) {
  return hn::GetLane(Saturate(F32(), hn::Set(F32(), x)));
}
float TanhDerivative1(float x) {
  return hn::GetLane(Tanh(F32(), hn::Set(F32(), x)).derivative);
}
void LoadRow1(const void* from, DType dtype, int64_t n, float* to) {
  LoadRow(from, dtype, n, n, to);
}
void StoreRow1(const float* from, int64_t n, DType dtype, void* to) {
  StoreRow(from, 1.0f, n, dtype, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "kernels/dtype.h"
#include "tests/kernels/cpu/every_target.h"

namespace attnd::cpu {
namespace {

using testing::OnEveryTarget;

HWY_EXPORT(ExpNonPositive1);
HWY_EXPORT(Tanh1);
HWY_EXPORT(TanhDerivative1);
HWY_EXPORT(Saturate1);
HWY_EXPORT(LoadRow1);
HWY_EXPORT(StoreRow1);

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr double kSmallest = std::numeric_limits<float>::min();

// The distance in units of the last place of `exact` as a normal float.
double Ulps(double got, double exact) {
  const double unit =
      std::ldexp(1.0, std::ilogb(std::max(std::abs(exact), kSmallest)) - 23);
  return std::abs(got - exact) / unit;
}

// Evenly spread floats, and as many around 0 on a logarithmic scale.
std::vector<float> Arguments(float low, float high) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> even(low, high);
  std::uniform_real_distribution<float> power(-40, 7);
  std::vector<float> x = {0.0f, -0.0f, low, high};
  for (int i = 0; i < 300'000; ++i) {
    x.push_back(even(random));
    const float small = std::exp2(power(random));
    if (small < high) x.push_back(small);
    if (-small > low) x.push_back(-small);
  }
  return x;
}

TEST(MathTest, ExpOfScoresIsAsAccurateAsTheyAre) {
  OnEveryTarget([] {
    for (float x : Arguments(-87.336f, 0.0f)) {
      const double exact = std::exp(static_cast<double>(x));
      const double error = HWY_DYNAMIC_DISPATCH(ExpNonPositive1)(x) - exact;
      ASSERT_LE(std::abs(error) / exact, 2.2e-7 + 8e-8 * std::abs(x)) << x;
    }
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(ExpNonPositive1)(0), 1);
  });
}

TEST(MathTest, ExpOfScoresEndsInZero) {
  OnEveryTarget([] {
    for (float x : {-kInf, -1e30f, -1000.0f, -104.0f, -88.0f}) {
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(ExpNonPositive1)(x), 0) << x;
    }
    EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(ExpNonPositive1)(kNan)));
  });
}

TEST(MathTest, TanhAndItsDerivativeKeepTheirRelativeAccuracy) {
  OnEveryTarget([] {
    for (float x : Arguments(-20, 20)) {
      const double exact = std::tanh(static_cast<double>(x));
      const double cosh = std::cosh(static_cast<double>(x));
      ASSERT_LE(Ulps(HWY_DYNAMIC_DISPATCH(Tanh1)(x), exact), 4.0) << x;
      ASSERT_LE(
          Ulps(HWY_DYNAMIC_DISPATCH(TanhDerivative1)(x), 1 / (cosh * cosh)),
          8.0)
          << x;
    }
    for (float x : {50.0f, 1e30f, kInf}) {
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Tanh1)(x), 1);
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Tanh1)(-x), -1);
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(TanhDerivative1)(x * 2), 0);
    }
    // On through the subnormal numbers, down to nothing.
    for (float x = 20; x < 60; x += 0.01f) {
      const double cosh = std::cosh(static_cast<double>(x));
      const double exact = 1 / (cosh * cosh);
      ASSERT_NEAR(HWY_DYNAMIC_DISPATCH(TanhDerivative1)(x), exact,
                  1e-6 * exact + 0x1p-146)
          << x;
    }
    EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(Tanh1)(kNan)));
  });
}

TEST(MathTest, SaturationLeavesAllButInfinityAsItIs) {
  OnEveryTarget([] {
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Saturate1)(kInf), kMost);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Saturate1)(-kInf), -kMost);
    for (float x : {kMost, -kMost, 0.0f, 1e-40f, -3.0f}) {
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(Saturate1)(x), x);
    }
    EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(Saturate1)(kNan)));
  });
}

TEST(RowsTest, LoadsEveryValueOfTheNarrowTypes) {
  OnEveryTarget([] {
    std::vector<uint16_t> bits(65536);
    for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      std::vector<float> got(65536);
      HWY_DYNAMIC_DISPATCH(LoadRow1)(bits.data(), dtype, 65536, got.data());
      for (int i = 0; i < 65536; ++i) {
        const float want = LoadElement(bits.data(), dtype, i);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got[i])) << i;
        } else {
          EXPECT_EQ(got[i], want) << i;
        }
      }
    }
  });
}

TEST(RowsTest, StoresRoundToNearestEven) {
  OnEveryTarget([] {
    std::mt19937 random(1);
    constexpr int kCount = 1 << 18;
    hwy::AlignedFreeUniquePtr<float[]> from =
        hwy::AllocateAligned<float>(kCount);
    for (int i = 0; i < kCount; ++i) {
      // Any bits at all, then exact ties of bf16 and of f16.
      uint32_t bits = random();
      if (i % 4 == 1) bits = (bits & 0xFFFF0000) | 0x8000;
      if (i % 4 == 2) bits = (bits & 0xFFFFE000) | 0x1000;
      if (i % 4 == 3) bits = (bits & 0x8FFFFFFF) | 0x30000000;
      std::memcpy(&from[i], &bits, sizeof(bits));
    }
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      std::vector<uint16_t> got(kCount), want(kCount);
      HWY_DYNAMIC_DISPATCH(StoreRow1)(from.get(), kCount, dtype, got.data());
      for (int i = 0; i < kCount; ++i) {
        StoreElement(want.data(), dtype, i, from[i]);
        if (std::isnan(from[i])) {
          ASSERT_TRUE(std::isnan(LoadElement(got.data(), dtype, i))) << i;
        } else {
          ASSERT_EQ(got[i], want[i]) << from[i];
        }
      }
    }
  });
}

TEST(RowsTest, TouchesNothingPastARowsEnd) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int64_t n = 1; n <= 40; ++n) {
        // Heap blocks of the exact size, which the address sanitizer guards.
        std::vector<std::byte> from(n * SizeOf(dtype)), to(n * SizeOf(dtype));
        for (int64_t i = 0; i < n; ++i) {
          StoreElement(from.data(), dtype, i, 1.0 + i);
        }
        hwy::AlignedFreeUniquePtr<float[]> row =
            hwy::AllocateAligned<float>(64);
        HWY_DYNAMIC_DISPATCH(LoadRow1)(from.data(), dtype, n, row.get());
        HWY_DYNAMIC_DISPATCH(StoreRow1)(row.get(), n, dtype, to.data());
        EXPECT_EQ(from, to);
      }
    }
  });
}

}  // namespace
}  // namespace attnd::cpu
#endif  // HWY_ONCE
