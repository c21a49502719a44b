// What Request::Create refuses, and the field it names.

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "base/field_error.h"
#include "gtest/gtest.h"
#include "kernels/request.h"
#include "tests/kernels/request_specs.h"

namespace attnd {
namespace {

using testing::BackwardSpec;
using testing::ForwardSpec;
using testing::PackedSpec;
using testing::Tensor;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kHuge = int64_t{1} << 62;

struct BadCase {
  std::string name;
  RequestSpec (*valid)();
  std::function<void(RequestSpec&)> spoil;
  std::string field;
};

void ExpectRefused(absl::Span<const BadCase> cases) {
  for (const BadCase& bad : cases) {
    RequestSpec spec = bad.valid();
    ASSERT_TRUE(Request::Create(spec).ok()) << bad.name;
    bad.spoil(spec);
    const absl::Status status = Request::Create(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_EQ(ErrorField(status), bad.field) << bad.name << ": " << status;
    EXPECT_LE(status.message().size(), 200) << bad.name;
  }
}

// Gives tensor `id` another shape.
std::function<void(RequestSpec&)> Shape(TensorId id,
                                        std::initializer_list<int64_t> shape) {
  return [id, shape = absl::InlinedVector<int64_t, 4>(shape)](
             RequestSpec& spec) { spec.inputs[id]->shape = shape; };
}
std::function<void(RequestSpec&)> Type(TensorId id, DType dtype) {
  return [id, dtype](RequestSpec& spec) { spec.inputs[id]->dtype = dtype; };
}
std::function<void(RequestSpec&)> Without(TensorId id) {
  return [id](RequestSpec& spec) { spec.inputs[id].reset(); };
}
std::function<void(RequestSpec&)> With(TensorId id, TensorSpec tensor) {
  return [id, tensor](RequestSpec& spec) { spec.inputs[id] = tensor; };
}

constexpr TensorId Q = TensorId::kQ, K = TensorId::kK, V = TensorId::kV;

TEST(RequestRefusalTest, RefusesShapesThatMakeNoAttention) {
  ExpectRefused({
      {"no q", ForwardSpec, Without(Q), "q"},
      {"no k", ForwardSpec, Without(K), "k"},
      {"no v", ForwardSpec, Without(V), "v"},
      {"rank 3", ForwardSpec, Shape(Q, {2, 5, 32}), "q.shape"},
      {"rank 0", ForwardSpec, Shape(K, {}), "k.shape"},
      {"rank 9", ForwardSpec, Shape(V, {1, 1, 1, 1, 1, 1, 1, 2, 6}), "v.shape"},
      {"rank 4 packed", PackedSpec, Shape(Q, {1, 5, 4, 8}), "q.shape"},
      {"negative", ForwardSpec, Shape(Q, {2, -5, 4, 8}), "q.shape"},
      {"lowest", ForwardSpec, Shape(K, {2, -kMost - 1, 2, 8}), "k.shape"},
      {"2^62 without volume", ForwardSpec, Shape(K, {2, kHuge, 0, 8}),
       "k.shape"},
      {"2^31 + 1", ForwardSpec, Shape(Q, {2, (int64_t{1} << 31) + 1, 4, 8}),
       "q.shape"},
      {"volume overflows", ForwardSpec,
       Shape(Q, {int64_t{1} << 20, int64_t{1} << 31, int64_t{1} << 11, 256}),
       "q.shape"},
      {"batch * heads", ForwardSpec,
       Shape(Q, {int64_t{1} << 20, 0, int64_t{1} << 12, 8}), "q.shape"},
      {"head_dim 0", ForwardSpec, Shape(Q, {2, 5, 4, 0}), "q.shape"},
      {"head_dim 257", ForwardSpec, Shape(Q, {2, 5, 4, 257}), "q.shape"},
      {"value_dim 257", ForwardSpec, Shape(V, {2, 7, 2, 257}), "v.shape"},
      {"head dims differ", ForwardSpec, Shape(K, {2, 7, 2, 9}), "k.shape"},
      {"k batch", ForwardSpec, Shape(K, {3, 7, 2, 8}), "k.shape"},
      {"v batch", ForwardSpec, Shape(V, {1, 7, 2, 6}), "v.shape"},
      {"v length", ForwardSpec, Shape(V, {2, 8, 2, 6}), "v.shape"},
      {"v heads", ForwardSpec, Shape(V, {2, 7, 4, 6}), "v.shape"},
      {"kv heads do not divide", ForwardSpec, Shape(K, {2, 7, 3, 8}),
       "v.shape"},
      {"no kv heads", ForwardSpec,
       [](RequestSpec& spec) {
         spec.inputs[K]->shape[2] = spec.inputs[V]->shape[2] = 0;
       },
       "k.shape"},
      {"3 kv heads", ForwardSpec,
       [](RequestSpec& spec) {
         spec.inputs[K]->shape[2] = spec.inputs[V]->shape[2] = 3;
       },
       "k.shape"},
      {"k type", ForwardSpec, Type(K, DType::kF16), "k.dtype"},
      {"v type", ForwardSpec, Type(V, DType::kF32), "v.dtype"},
      {"a gradient in forward", ForwardSpec,
       With(TensorId::kDO, Tensor({2, 5, 4, 6})), "d_o"},
      {"an output as input", ForwardSpec,
       With(TensorId::kDQ, Tensor({2, 5, 4, 8})), "dq"},
      {"o too large", ForwardSpec,
       [](RequestSpec& spec) {
         spec.inputs[Q]->shape = {1, int64_t{1} << 31, int64_t{1} << 23, 1};
         spec.inputs[K]->shape = {1, 0, 1, 1};
         spec.inputs[V]->shape = {1, 0, 1, 256};
       },
       "o"},
  });
}

TEST(RequestRefusalTest, RefusesBiasThatDoesNotBroadcast) {
  const auto bias = [](std::initializer_list<int64_t> shape,
                       DType dtype = DType::kF32) {
    return With(TensorId::kBias, Tensor(shape, dtype));
  };
  ExpectRefused({
      {"rank", ForwardSpec, bias({5, 7}), "bias.shape"},
      {"batch", ForwardSpec, bias({3, 1, 5, 7}), "bias.shape"},
      {"heads", ForwardSpec, bias({1, 2, 5, 7}), "bias.shape"},
      {"rows", ForwardSpec, bias({1, 1, 1, 7}), "bias.shape"},
      {"columns", ForwardSpec, bias({1, 1, 5, 8}), "bias.shape"},
      {"type", ForwardSpec, bias({1, 1, 5, 7}, DType::kF16), "bias.dtype"},
      {"packed rows", PackedSpec, bias({2, 4, 5, 6}), "bias.shape"},
  });
}

TEST(RequestRefusalTest, RefusesBackwardThatLacksOrMixesInputs) {
  const TensorId dO = TensorId::kDO, lse = TensorId::kLse, o = TensorId::kO,
                 delta = TensorId::kDelta;
  ExpectRefused({
      {"no d_o", BackwardSpec, Without(dO), "d_o"},
      {"no lse", BackwardSpec, Without(lse), "lse"},
      {"neither o nor delta", BackwardSpec, Without(o), "o"},
      {"both", BackwardSpec, With(delta, Tensor({2, 4, 5}, DType::kF32)),
       "delta"},
      {"d_o shape", BackwardSpec, Shape(dO, {2, 5, 4, 8}), "d_o.shape"},
      {"d_o type", BackwardSpec, Type(dO, DType::kF32), "d_o.dtype"},
      {"o shape", BackwardSpec, Shape(o, {2, 4, 5, 6}), "o.shape"},
      {"o type", BackwardSpec, Type(o, DType::kF16), "o.dtype"},
      {"lse shape", BackwardSpec, Shape(lse, {2, 5, 4}), "lse.shape"},
      {"lse type", BackwardSpec, Type(lse, DType::kBF16), "lse.dtype"},
      {"d_lse type", BackwardSpec, With(TensorId::kDLse, Tensor({2, 4, 5})),
       "d_lse.dtype"},
      {"delta shape", BackwardSpec,
       [](RequestSpec& spec) {
         spec.inputs[TensorId::kO].reset();
         spec.inputs[TensorId::kDelta] = Tensor({2, 4, 6}, DType::kF32);
       },
       "delta.shape"},
  });
}

TEST(RequestRefusalTest, RefusesLensThatDoNotFit) {
  ExpectRefused({
      {"beyond", ForwardSpec,
       [](RequestSpec& s) {
         s.q_lens = {5, 6};
       },
       "attention.q_lens"},
      {"negative", ForwardSpec,
       [](RequestSpec& s) {
         s.kv_lens = {-1, 6};
       },
       "attention.kv_lens"},
      {"one for two", ForwardSpec, [](RequestSpec& s) { s.q_lens = {5}; },
       "attention.q_lens"},
      {"three for two", ForwardSpec,
       [](RequestSpec& s) {
         s.kv_lens = {1, 1, 1};
       },
       "attention.kv_lens"},
      {"packed sum short", PackedSpec,
       [](RequestSpec& s) {
         s.q_lens = {3, 1};
       },
       "attention.q_lens"},
      {"packed sum long", PackedSpec,
       [](RequestSpec& s) {
         s.kv_lens = {1, 7};
       },
       "attention.kv_lens"},
      {"packed negative", PackedSpec,
       [](RequestSpec& s) {
         s.q_lens = {6, -1};
       },
       "attention.q_lens"},
      {"packed overflow", PackedSpec,
       [](RequestSpec& s) {
         s.kv_lens = {kMost, kMost};
       },
       "attention.kv_lens"},
      {"packed counts", PackedSpec,
       [](RequestSpec& s) {
         s.kv_lens = {1, 3, 3};
       },
       "attention.kv_lens"},
      {"packed without", PackedSpec,
       [](RequestSpec& s) { s.q_lens = s.kv_lens = {}; }, "attention.q_lens"},
  });
}

TEST(RequestRefusalTest, RefusesPositionsThatOverflow) {
  constexpr int64_t kEnd = kMaxPosition;
  ExpectRefused({
      {"q start high", ForwardSpec,
       [](RequestSpec& s) { s.q_start = {kEnd + 1}; }, "attention.q_start"},
      {"q start low", ForwardSpec,
       [](RequestSpec& s) { s.q_start = {-kMost - 1}; }, "attention.q_start"},
      {"last row", ForwardSpec, [](RequestSpec& s) { s.q_start = {kEnd - 3}; },
       "attention.q_start"},
      {"second sequence", ForwardSpec,
       [](RequestSpec& s) {
         s.kv_start = {0, kEnd};
       },
       "attention.kv_start"},
      {"one of three", ForwardSpec,
       [](RequestSpec& s) {
         s.kv_start = {0, 0, 0};
       },
       "attention.kv_start"},
      {"q stride", ForwardSpec, [](RequestSpec& s) { s.q_stride = kEnd; },
       "attention.q_stride"},
      {"kv stride", ForwardSpec, [](RequestSpec& s) { s.kv_stride = kEnd / 2; },
       "attention.kv_stride"},
      {"stride 0", ForwardSpec, [](RequestSpec& s) { s.q_stride = 0; },
       "attention.q_stride"},
      {"stride negative", ForwardSpec, [](RequestSpec& s) { s.kv_stride = -1; },
       "attention.kv_stride"},
      {"stride highest", ForwardSpec,
       [](RequestSpec& s) { s.kv_stride = kMost; }, "attention.kv_stride"},
      {"packed", PackedSpec,
       [](RequestSpec& s) {
         s.q_start = {0, kEnd};
       },
       "attention.q_start"},
  });
}

TEST(RequestRefusalTest, RefusesScalarsOutOfRange) {
  const float inf = INFINITY, nan = NAN;
  ExpectRefused({
      {"scale inf", ForwardSpec, [=](RequestSpec& s) { s.scale = inf; },
       "attention.scale"},
      {"scale nan", ForwardSpec, [=](RequestSpec& s) { s.scale = nan; },
       "attention.scale"},
      {"softcap 0", ForwardSpec, [](RequestSpec& s) { s.softcap = 0; },
       "attention.softcap"},
      {"softcap < 0", ForwardSpec, [](RequestSpec& s) { s.softcap = -1; },
       "attention.softcap"},
      {"softcap nan", ForwardSpec, [=](RequestSpec& s) { s.softcap = nan; },
       "attention.softcap"},
      {"softcap inf", ForwardSpec, [=](RequestSpec& s) { s.softcap = inf; },
       "attention.softcap"},
      {"left -2", ForwardSpec, [](RequestSpec& s) { s.mask.left = -2; },
       "attention.mask.window_left"},
      {"right lowest", ForwardSpec,
       [](RequestSpec& s) { s.mask.right = -kMost - 1; },
       "attention.mask.window_right"},
  });
}

TEST(RequestRefusalTest, RefusesOutputsItCannotGive) {
  ExpectRefused({
      {"o type", ForwardSpec,
       [](RequestSpec& s) { s.outputs[TensorId::kO].dtype = DType::kF16; },
       "o.dtype"},
      {"lse type", ForwardSpec,
       [](RequestSpec& s) { s.outputs[TensorId::kLse].dtype = DType::kBF16; },
       "lse.dtype"},
      {"dk type", BackwardSpec,
       [](RequestSpec& s) { s.outputs[TensorId::kDK].dtype = DType::kF16; },
       "dk.dtype"},
      {"nothing forward", ForwardSpec,
       [](RequestSpec& s) {
         s.outputs[TensorId::kO].want = s.outputs[TensorId::kLse].want = false;
       },
       "o.want"},
      {"nothing backward", BackwardSpec,
       [](RequestSpec& s) {
         for (TensorId id : {TensorId::kDQ, TensorId::kDK, TensorId::kDV})
           s.outputs[id].want = false;
       },
       "dq.want"},
  });
}

}  // namespace
}  // namespace attnd
