// NaN among a sequence's own elements reaches its own head alone, though
// several heads share a vector.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cpu/every_target.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/run_group.h"

namespace attnd {
namespace {

using testing::OnEveryTarget;
using testing::OwnedRows;
using testing::OwnedTensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kBatch = 2, kKvHeads = 2, kKeys = 150;

struct Shape {
  int64_t q_len, group, dim;
  int64_t q_heads() const { return kKvHeads * group; }
};

struct Attention {
  explicit Attention(const Shape& s, DType dtype)
      : shape(s),
        q(dtype, kBatch, s.q_len, s.q_heads(), s.dim),
        k(dtype, kBatch, kKeys, kKvHeads, s.dim),
        v(dtype, kBatch, kKeys, kKvHeads, s.dim),
        o(dtype, kBatch, s.q_len, s.q_heads(), s.dim),
        lse(kBatch, s.q_heads(), s.q_len) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (OwnedTensor* t : {&q, &k, &v}) {
      for (int64_t b = 0; b < kBatch; ++b) {
        for (int64_t i = 0; i < t->tokens(); ++i) {
          for (int64_t h = 0; h < t->heads(); ++h) {
            for (int64_t d = 0; d < s.dim; ++d) {
              t->Set(b, i, h, d, normal(random));
            }
          }
        }
      }
    }
  }

  void Run(Stream& stream) {
    KvSegment segment;
    segment.len = kKeys;
    segment.k = std::as_const(k).view();
    segment.v = std::as_const(v).view();
    Problem p;
    p.batch = kBatch;
    p.q_len = shape.q_len;
    p.q_heads = shape.q_heads();
    p.kv_heads = kKvHeads;
    p.head_dim = p.value_dim = shape.dim;
    p.q = std::as_const(q).view();
    p.kv = {&segment, 1};
    p.scale = 0.2f;
    o.Poison();
    lse.Poison();
    const ForwardArgs args{p, o.view(), lse.view()};
    ASSERT_TRUE(testing::RunForward(stream, {&args, 1}).ok());
  }

  bool AnyNan(int64_t b, int64_t head) const {
    for (int64_t i = 0; i < shape.q_len; ++i) {
      if (std::isnan(lse.Get(b, head, i))) return true;
      for (int64_t d = 0; d < shape.dim; ++d) {
        if (std::isnan(o.Get(b, i, head, d))) return true;
      }
    }
    return false;
  }

  const Shape shape;
  OwnedTensor q, k, v, o;
  OwnedRows lse;
};

// Dense vectors of 1, 2, 4 and 8 queries, some that are none, and packed tiles.
constexpr Shape kShapes[] = {{1, 1, 64}, {1, 2, 64},  {1, 4, 128},
                             {2, 4, 16}, {1, 3, 48},  {1, 6, 32},
                             {1, 4, 20}, {30, 2, 32}, {200, 1, 16}};

// Runs each shape with an element of `which` made NaN, in batch 1 and head 1.
template <class Reaches>
void Check(OwnedTensor Attention::*which, Reaches reaches) {
  const auto stream_of = CreateCpuBackend({.threads = 2}).value();
  const auto stream = stream_of->NewStream().value();
  OnEveryTarget([&] {
    for (const Shape& shape : kShapes) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Attention attention(shape, dtype);
        (attention.*which).Set(1, 0, 1 % (attention.*which).heads(), 5, kNan);
        attention.Run(*stream);
        for (int64_t b = 0; b < kBatch; ++b) {
          for (int64_t h = 0; h < shape.q_heads(); ++h) {
            EXPECT_EQ(attention.AnyNan(b, h), b == 1 && reaches(shape, h))
                << shape.q_len << " " << shape.group << " " << shape.dim
                << " head " << h;
          }
        }
      }
    }
  });
}

TEST(CpuIsolationTest, ANanInQReachesItsHead) {
  Check(&Attention::q, [](const Shape&, int64_t head) { return head == 1; });
}

TEST(CpuIsolationTest, ANanInKReachesTheHeadsThatShareIt) {
  Check(&Attention::k, [](const Shape& shape, int64_t head) {
    return head / shape.group == 1;
  });
}

TEST(CpuIsolationTest, ANanInVReachesTheHeadsThatShareIt) {
  Check(&Attention::v, [](const Shape& shape, int64_t head) {
    return head / shape.group == 1;
  });
}

}  // namespace
}  // namespace attnd
