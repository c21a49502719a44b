// Which tensors backward is given and asked for, of which types and where they
// lie, on a GPU.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/gradient_problem.h"

namespace attnd {
namespace {

using testing::DeviceTest;
using testing::GradientProblem;
using testing::OwnedTensor;

struct Kind {
  DType dtype;
  int64_t dim;
  bool softcap = false;  // which Hopper's kernels leave to others
};

class CudaBackwardViewsTest : public DeviceTest,
                              public ::testing::WithParamInterface<Kind> {
 protected:
  CudaBackwardViewsTest()
      : problem_(3, {.dtype = GetParam().dtype,
                     .batch = 2,
                     .q_len = 70,
                     .kv_len = 140,
                     .q_heads = 2,
                     .dim = GetParam().dim,
                     .mask = {.causal = true}}) {
    if (GetParam().softcap) problem_.problem().softcap = 3.0f;
  }

  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) problem_.Solve();
  }

  void ExpectAccurate() {
    for (bool deterministic : {false, true}) {
      problem_.PoisonOutputs();
      const auto counts = device().Backward({&problem_.args, 1},
                                            {.deterministic = deterministic});
      ASSERT_TRUE(counts.ok()) << counts.status();
      ASSERT_TRUE(problem_.IsAccurate()) << "deterministic " << deterministic;
    }
  }

  GradientProblem problem_;
};

TEST_P(CudaBackwardViewsTest, AnyOutputsMayBeAbsent) {
  const DType dtype = GetParam().dtype;
  for (int wanted = 1; wanted < 8; ++wanted) {
    SCOPED_TRACE(wanted);
    const auto type = [&](int bit) -> std::optional<DType> {
      return (wanted & bit) != 0 ? std::make_optional(dtype) : std::nullopt;
    };
    problem_.SetOutputs(type(1), type(2), type(4));
    ExpectAccurate();
  }
}

TEST_P(CudaBackwardViewsTest, NothingIsLaunchedWhereAllAre) {
  problem_.SetOutputs({}, {}, {});
  const auto counts = device().Backward({&problem_.args, 1});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 0);
}

// Those that want dQ share launches with those that do not.
TEST_P(CudaBackwardViewsTest, ProblemsOfAGroupMayWantUnlikeOutputs) {
  const DType dtype = GetParam().dtype;
  std::vector<testing::RandomProblem::BackwardOutputs> out(6);
  std::vector<BackwardArgs> group;
  for (size_t n = 0; n < out.size(); ++n) {
    problem_.SetOutputs(
        n % 2 == 0 ? std::make_optional(dtype) : std::nullopt,
        n % 3 == 0 ? std::nullopt : std::make_optional(DType::kF32),
        n == 4 ? std::nullopt : std::make_optional(dtype));
    group.push_back(problem_.Into(out[n]));
  }
  const auto counts = device().Backward(group, {.deterministic = true});
  ASSERT_TRUE(counts.ok()) << counts.status();
  for (size_t n = 0; n < out.size(); ++n) {
    EXPECT_TRUE(testing::CheckGradients(group[n], out[n],
                                        testing::Slack::kApproximations))
        << n;
  }
}

TEST_P(CudaBackwardViewsTest, EachOutputMayBeInF32) {
  const DType dtype = GetParam().dtype;
  for (int f32 = 1; f32 < 8; ++f32) {
    SCOPED_TRACE(f32);
    const auto type = [&](int bit) {
      return (f32 & bit) != 0 ? DType::kF32 : dtype;
    };
    problem_.SetOutputs(type(1), type(2), type(4));
    ExpectAccurate();
  }
}

OwnedTensor Copy(const OwnedTensor& t, DType dtype, bool heads_first,
                 int64_t gap) {
  OwnedTensor copy(dtype, t.batch(), t.tokens(), t.heads(), t.dim(),
                   heads_first, gap);
  for (int64_t b = 0; b < t.batch(); ++b) {
    for (int64_t i = 0; i < t.tokens(); ++i) {
      for (int64_t h = 0; h < t.heads(); ++h) {
        for (int64_t d = 0; d < t.dim(); ++d) {
          copy.Set(b, i, h, d, t.Get(b, i, h, d));
        }
      }
    }
  }
  return copy;
}

TEST_P(CudaBackwardViewsTest, OMayBeInF32) {
  const OwnedTensor o = Copy(problem_.forward.o, DType::kF32, false, 0);
  problem_.args.o = o.view();
  ExpectAccurate();
}

TEST_P(CudaBackwardViewsTest, DeltaMayBeGivenInPlaceOfO) {
  problem_.args.o = {};
  problem_.args.delta = std::as_const(problem_.delta).view();
  ExpectAccurate();
}

TEST_P(CudaBackwardViewsTest, LseMayHaveAGradient) {
  problem_.args.d_lse = std::as_const(problem_.d_lse).view();
  ExpectAccurate();
  problem_.args.o = {};
  problem_.args.delta = std::as_const(problem_.delta).view();
  ExpectAccurate();
}

// Each tensor in turn is laid out unlike all others: with heads first, or with
// rows that are aligned to single elements.
TEST_P(CudaBackwardViewsTest, EachInputMayLieAnywhere) {
  const DType dtype = GetParam().dtype;
  const auto expect_accurate_with = [&](const char* name, ConstTensorView& view,
                                        const OwnedTensor& t) {
    SCOPED_TRACE(name);
    const ConstTensorView before = view;
    for (int64_t gap : {0, 1, 8}) {
      SCOPED_TRACE(gap);
      const OwnedTensor copy = Copy(t, dtype, gap != 1, gap);
      view = copy.view();
      ExpectAccurate();
    }
    view = before;
  };
  expect_accurate_with("q", problem_.problem().q, problem_.forward.q);
  expect_accurate_with("k", problem_.segment().k, problem_.forward.k);
  expect_accurate_with("v", problem_.segment().v, problem_.forward.v);
  expect_accurate_with("o", problem_.args.o, problem_.forward.o);
  expect_accurate_with("d_o", problem_.args.d_o, problem_.d_o);
}

TEST_P(CudaBackwardViewsTest, EachOutputMayLieAnywhere) {
  const auto expect_accurate_with = [&](const char* name, TensorView& view,
                                        OwnedTensor& t) {
    SCOPED_TRACE(name);
    for (DType dtype : {GetParam().dtype, DType::kF32}) {
      for (int64_t gap : {0, 1, 8}) {
        SCOPED_TRACE(gap);
        t = Copy(t, dtype, gap != 1, gap);
        view = t.view();
        ExpectAccurate();
      }
    }
  };
  expect_accurate_with("dq", problem_.args.dq, problem_.out.dq);
  expect_accurate_with("dk", problem_.segment().dk, problem_.out.dk[0]);
  expect_accurate_with("dv", problem_.segment().dv, problem_.out.dv[0]);
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {64, 128}) kinds.push_back({dtype, dim});
  }
  kinds.push_back({DType::kBF16, 72});
  kinds.push_back({DType::kF16, 256});
  kinds.push_back({DType::kBF16, 128, true});
  return kinds;
}

std::string Name(const ::testing::TestParamInfo<Kind>& info) {
  const auto& [dtype, dim, softcap] = info.param;
  return absl::StrCat(dtype == DType::kF32   ? "F32"
                      : dtype == DType::kF16 ? "F16"
                                             : "Bf16",
                      "Dim", dim, softcap ? "Softcap" : "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaBackwardViewsTest,
                         ::testing::ValuesIn(Kinds()), Name);

}  // namespace
}  // namespace attnd
