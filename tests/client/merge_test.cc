#include "attnd/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "client/element.h"
#include "client/tensor_size.h"

namespace attnd::client {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A tensor with memory, poisoned until it is filled.
struct Buffer {
  Buffer(DType dtype, std::vector<int64_t> shape)
      : dtype(dtype),
        shape(shape),
        data(*TensorBytes("buffer", dtype, shape), '\xff') {}

  size_t size() const { return data.size() / SizeOf(dtype); }
  void set(size_t i, float value) {
    StoreElement(dtype, value, data.data(), i);
  }
  float at(size_t i) const { return LoadElement(dtype, data.data(), i); }
  ConstTensor view() const { return {dtype, shape, data.data()}; }
  Tensor out() { return {dtype, shape, data.data()}; }

  DType dtype;
  std::vector<int64_t> shape;
  std::vector<char> data;
};

struct Shard {
  Buffer o, lse;
};

// Where row `r` of head `h` of batch `b` begins in O, and its LSE.
struct Sizes {
  int64_t batch, rows, heads, dim;

  std::vector<int64_t> o_shape(Layout layout) const {
    if (layout == Layout::kPacked) return {rows, heads, dim};
    if (layout == Layout::kBhsd) return {batch, heads, rows, dim};
    return {batch, rows, heads, dim};
  }
  std::vector<int64_t> lse_shape(Layout layout) const {
    if (layout == Layout::kPacked) return {heads, rows};
    return {batch, heads, rows};
  }
  int64_t o_index(Layout layout, int64_t b, int64_t h, int64_t r) const {
    if (layout == Layout::kBhsd) return ((b * heads + h) * rows + r) * dim;
    return ((b * rows + r) * heads + h) * dim;
  }
  int64_t lse_index(int64_t b, int64_t h, int64_t r) const {
    return (b * heads + h) * rows + r;
  }
};

// Attention of random scores and values over `columns`, cut into shards at
// random places; some rows see nothing of some shards, or of all.
class MergeTest : public ::testing::Test {
 protected:
  void Run(Layout layout, const Sizes& sizes, int shards, DType partial_type,
           DType out_type);

  absl::BitGen rng_;
};

// O and LSE of one row over columns [begin, end), in double.
struct Row {
  std::vector<double> o;
  double lse;
};
Row Attend(const std::vector<double>& scores,
           const std::vector<std::vector<double>>& values, int begin, int end,
           int64_t dim) {
  double sum = 0;
  Row row{std::vector<double>(dim, 0), -kInfinity};
  for (int j = begin; j < end; ++j) {
    const double p = std::exp(scores[j]);
    sum += p;
    for (int64_t d = 0; d < dim; ++d) row.o[d] += p * values[j][d];
  }
  if (sum == 0) return row;
  for (double& o : row.o) o /= sum;
  row.lse = std::log(sum);
  return row;
}

void MergeTest::Run(Layout layout, const Sizes& sizes, int shards,
                    DType partial_type, DType out_type) {
  constexpr int kColumns = 12;
  std::vector<Shard> partial;
  for (int i = 0; i < shards; ++i) {
    partial.push_back({{partial_type, sizes.o_shape(layout)},
                       {DType::kF32, sizes.lse_shape(layout)}});
  }
  std::vector<int> cuts = {0};
  for (int i = 1; i < shards; ++i) {
    cuts.push_back(absl::Uniform(rng_, cuts.back(), kColumns + 1));
  }
  cuts.push_back(kColumns);
  Buffer o(out_type, sizes.o_shape(layout));
  Buffer lse(DType::kF32, sizes.lse_shape(layout));
  std::vector<Row> expected(lse.size());
  // Each rounding of a partial moves the result by at most half a unit of its
  // type, relative to the largest value there is (1).
  const auto unit = [](DType type) {
    return type == DType::kF32   ? 0x1p-24
           : type == DType::kF16 ? 0x1p-11
                                 : 0x1p-8;
  };
  for (int64_t b = 0; b < sizes.batch; ++b) {
    for (int64_t h = 0; h < sizes.heads; ++h) {
      for (int64_t r = 0; r < sizes.rows; ++r) {
        std::vector<double> scores(kColumns);
        std::vector<std::vector<double>> values(kColumns);
        for (int j = 0; j < kColumns; ++j) {
          scores[j] = absl::Uniform(rng_, -30.0, 30.0);
          for (int64_t d = 0; d < sizes.dim; ++d) {
            values[j].push_back(absl::Uniform(rng_, -1.0, 1.0));
          }
        }
        const int seen = absl::Bernoulli(rng_, 0.2)
                             ? 0
                             : absl::Uniform(rng_, 0, kColumns + 1);
        for (int i = 0; i < shards; ++i) {
          const Row row = Attend(scores, values, cuts[i],
                                 std::min(seen, cuts[i + 1]), sizes.dim);
          const int64_t at = sizes.o_index(layout, b, h, r);
          for (int64_t d = 0; d < sizes.dim; ++d) {
            partial[i].o.set(at + d, row.o[d]);
          }
          partial[i].lse.set(sizes.lse_index(b, h, r), row.lse);
        }
        expected[sizes.lse_index(b, h, r)] =
            Attend(scores, values, 0, shards == 0 ? 0 : seen, sizes.dim);
      }
    }
  }

  std::vector<Partial> partials;
  for (const Shard& shard : partial) {
    partials.push_back({shard.o.view(), shard.lse.view()});
  }
  const absl::Status status =
      MergePartials(partials, layout, o.out(), lse.out());
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    for (int64_t h = 0; h < sizes.heads; ++h) {
      for (int64_t r = 0; r < sizes.rows; ++r) {
        const int64_t at = sizes.lse_index(b, h, r);
        const Row& row = expected[at];
        if (std::isinf(row.lse)) {
          ASSERT_EQ(lse.at(at), -kInfinity);
        } else {
          // The LSEs are at most about 33: two roundings of such.
          ASSERT_NEAR(lse.at(at), row.lse, 2 * 33 * 0x1p-24);
        }
        for (int64_t d = 0; d < sizes.dim; ++d) {
          const double actual = o.at(sizes.o_index(layout, b, h, r) + d);
          if (std::isinf(row.lse)) {
            ASSERT_EQ(actual, 0);
          } else {
            // Rounded LSEs move each weight by up to 33 * 2^-24 of itself.
            ASSERT_NEAR(actual, row.o[d],
                        unit(partial_type) + unit(out_type) + 66 * 0x1p-24);
          }
        }
      }
    }
  }
}

TEST_F(MergeTest, AgreesWithAttentionOverAllColumns) {
  for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kPacked}) {
    for (const int shards : {0, 1, 2, 3, 7}) {
      for (const DType in : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const DType out : {DType::kF32, DType::kF16, DType::kBF16}) {
          SCOPED_TRACE(absl::StrCat(static_cast<int>(layout), " ", shards));
          const Sizes sizes = {layout == Layout::kPacked ? 1 : 2, 5, 3, 4};
          Run(layout, sizes, shards, in, out);
        }
      }
    }
  }
}

TEST_F(MergeTest, EmptyTensorsMergeToEmptyTensors) {
  for (const Sizes& sizes : {Sizes{0, 5, 3, 4}, Sizes{2, 0, 3, 4},
                             Sizes{2, 5, 0, 4}, Sizes{2, 5, 3, 0}}) {
    Run(Layout::kBshd, sizes, 2, DType::kF32, DType::kF32);
  }
}

TEST(MergePartialsTest, OnePartialComesBackBitForBit) {
  absl::BitGen rng;
  Buffer o(DType::kF32, {1, 6, 2, 3}), lse(DType::kF32, {1, 2, 6});
  for (size_t i = 0; i < o.size(); ++i) o.set(i, absl::Uniform(rng, -9.f, 9.f));
  for (size_t i = 0; i < lse.size(); ++i) {
    lse.set(i, absl::Uniform(rng, -9.f, 9.f));
  }
  Buffer to(DType::kF32, o.shape), to_lse(DType::kF32, lse.shape);
  ASSERT_TRUE(MergePartials({{o.view(), lse.view()}}, Layout::kBshd, to.out(),
                            to_lse.out())
                  .ok());
  EXPECT_EQ(to.data, o.data);
  EXPECT_EQ(to_lse.data, lse.data);
}

// Of a partial that is midway between two values of the output's type, and one
// that moves it by 1e-9 of itself: less than f32 can hold, but not nothing.
TEST(MergePartialsTest, RoundsOnceFromDouble) {
  struct Case {
    DType dtype;
    float middle, nudge;
    uint16_t right;
  };
  for (const Case& c : {Case{DType::kF16, 1 + 0x1p-11f, 1000, 0x3c01},
                        Case{DType::kF16, 1 + 3 * 0x1p-11f, -1000, 0x3c01},
                        Case{DType::kF16, -1 - 0x1p-11f, -1000, 0xbc01},
                        Case{DType::kBF16, 1 + 0x1p-8f, 1000, 0x3f81},
                        Case{DType::kBF16, 1 + 3 * 0x1p-8f, -1000, 0x3f81}}) {
    Buffer a(DType::kF32, {1, 1, 1, 1}), a_lse(DType::kF32, {1, 1, 1});
    Buffer b(DType::kF32, {1, 1, 1, 1}), b_lse(DType::kF32, {1, 1, 1});
    a.set(0, c.middle);
    a_lse.set(0, 0);
    b.set(0, c.nudge);
    b_lse.set(0, -27.631f);  // a weight of 1e-12
    Buffer to(c.dtype, {1, 1, 1, 1});
    ASSERT_TRUE(
        MergePartials({{a.view(), a_lse.view()}, {b.view(), b_lse.view()}},
                      Layout::kBshd, to.out(), {})
            .ok());
    uint16_t bits;
    std::memcpy(&bits, to.data.data(), 2);
    EXPECT_EQ(bits, c.right) << c.middle << " " << c.nudge;
  }
}

TEST(MergePartialsTest, WhatAnEmptyPartialHoldsIsNotRead) {
  Buffer good(DType::kF32, {1, 1, 1, 2}), good_lse(DType::kF32, {1, 1, 1});
  good.set(0, 1);
  good.set(1, 2);
  good_lse.set(0, -200);
  Buffer nan(DType::kF32, good.shape), nan_lse(DType::kF32, good_lse.shape);
  nan_lse.set(0, -kInfinity);
  Buffer to(DType::kF32, good.shape);
  ASSERT_TRUE(MergePartials({{nan.view(), nan_lse.view()},
                             {good.view(), good_lse.view()},
                             {nan.view(), nan_lse.view()}},
                            Layout::kBshd, to.out(), {})
                  .ok());
  EXPECT_EQ(to.data, good.data);
}

TEST(MergePartialsTest, ANanInOneRowStaysInThatRow) {
  Buffer a(DType::kF32, {1, 2, 1, 1}), a_lse(DType::kF32, {1, 1, 2});
  a.set(0, 1);
  a.set(1, 1);
  a_lse.set(0, std::nanf(""));
  a_lse.set(1, 3);
  Buffer to(DType::kF32, a.shape), to_lse(DType::kF32, a_lse.shape);
  ASSERT_TRUE(
      MergePartials({{a.view(), a_lse.view()}, {a.view(), a_lse.view()}},
                    Layout::kBshd, to.out(), to_lse.out())
          .ok());
  EXPECT_TRUE(std::isnan(to.at(0)));
  EXPECT_TRUE(std::isnan(to_lse.at(0)));
  EXPECT_EQ(to.at(1), 1);
}

TEST(MergePartialsTest, MergesIntoAPartialsOwnMemory) {
  absl::BitGen rng;
  Buffer a(DType::kF32, {2, 3, 2, 4}), a_lse(DType::kF32, {2, 2, 3});
  Buffer b(DType::kF32, a.shape), b_lse(DType::kF32, a_lse.shape);
  for (Buffer* buffer : {&a, &a_lse, &b, &b_lse}) {
    for (size_t i = 0; i < buffer->size(); ++i) {
      buffer->set(i, absl::Uniform(rng, -2.f, 2.f));
    }
  }
  Buffer to(DType::kF32, a.shape), to_lse(DType::kF32, a_lse.shape);
  const std::vector<Partial> partials = {{a.view(), a_lse.view()},
                                         {b.view(), b_lse.view()}};
  ASSERT_TRUE(
      MergePartials(partials, Layout::kBshd, to.out(), to_lse.out()).ok());
  ASSERT_TRUE(
      MergePartials(partials, Layout::kBshd, a.out(), a_lse.out()).ok());
  EXPECT_EQ(a.data, to.data);
  EXPECT_EQ(a_lse.data, to_lse.data);
}

TEST(MergePartialsTest, RefusesWhatDoesNotFitAndNamesIt) {
  Buffer o(DType::kF32, {1, 2, 3, 4}), lse(DType::kF32, {1, 3, 2});
  const Partial good = {o.view(), lse.view()};
  const auto refused = [&](const Partial& second, const Tensor& out,
                           const Tensor& out_lse, const char* field) {
    const absl::Status status =
        MergePartials({good, second}, Layout::kBshd, out, out_lse);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  Partial bad = good;
  bad.o.shape = {1, 2, 3, 5};
  refused(bad, o.out(), lse.out(), "partials[1].o.shape");
  bad = good;
  bad.lse.shape = {1, 2, 3};
  refused(bad, o.out(), lse.out(), "partials[1].lse.shape");
  bad = good;
  bad.lse.dtype = DType::kF16;
  refused(bad, o.out(), lse.out(), "partials[1].lse.dtype");
  bad = good;
  bad.o.data = nullptr;
  refused(bad, o.out(), lse.out(), "partials[1].o.data");
  Tensor out = o.out();
  out.shape = {2, 3, 4};
  refused(good, out, lse.out(), "o.shape");
  out.shape = {1, 2, 3, -4};
  refused(good, out, lse.out(), "o.shape");
  out = lse.out();
  out.shape = {1, 3, 3};
  refused(good, o.out(), out, "lse.shape");
  out = o.out();
  out.dtype = static_cast<DType>(3);
  refused(good, out, lse.out(), "o.dtype");
  bad = good;
  bad.o.dtype = static_cast<DType>(77);
  refused(bad, o.out(), lse.out(), "partials[1].o.dtype");
  const absl::Status layout =
      MergePartials({good}, static_cast<Layout>(3), o.out(), lse.out());
  EXPECT_TRUE(absl::IsInvalidArgument(layout)) << layout;
  EXPECT_THAT(std::string(layout.message()), HasSubstr("layout: "));
}

}  // namespace
}  // namespace attnd::client
