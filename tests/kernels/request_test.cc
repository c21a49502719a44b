#include "kernels/request.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/field_error.h"

namespace attnd {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TensorSpec Tensor(std::initializer_list<int64_t> shape,
                  DType dtype = DType::kBF16) {
  return {dtype, shape};
}

// Valid ones, for tests to spoil. BSHD: 2 sequences, 5 rows, 7 columns, 4 query
// and 2 K/V heads, dims 8 and 6.
RequestSpec ForwardSpec() {
  RequestSpec spec;
  spec.inputs[TensorId::kQ] = Tensor({2, 5, 4, 8});
  spec.inputs[TensorId::kK] = Tensor({2, 7, 2, 8});
  spec.inputs[TensorId::kV] = Tensor({2, 7, 2, 6});
  return spec;
}

RequestSpec BackwardSpec() {
  RequestSpec spec = ForwardSpec();
  spec.op = Op::kBackward;
  spec.inputs[TensorId::kDO] = Tensor({2, 5, 4, 6});
  spec.inputs[TensorId::kLse] = Tensor({2, 4, 5}, DType::kF32);
  spec.inputs[TensorId::kO] = Tensor({2, 5, 4, 6});
  return spec;
}

// Sequences of 3 and 2 rows, 1 and 6 columns.
RequestSpec PackedSpec() {
  RequestSpec spec;
  spec.layout = Layout::kPacked;
  spec.inputs[TensorId::kQ] = Tensor({5, 4, 8});
  spec.inputs[TensorId::kK] = Tensor({7, 2, 8});
  spec.inputs[TensorId::kV] = Tensor({7, 2, 6});
  spec.q_lens = {3, 2};
  spec.kv_lens = {1, 6};
  return spec;
}

// The error's fields, as BadRequest would name them.
bool NamesField(const absl::Status& status, const std::string& field) {
  const auto payload = status.GetPayload(kBadRequestUrl);
  if (!payload.has_value()) return false;
  const std::string tagged =
      std::string("\x0a") + static_cast<char>(field.size()) + field;
  return absl::StrContains(std::string(*payload), tagged + "\x12");
}

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
    EXPECT_TRUE(NamesField(status, bad.field)) << bad.name << ": " << status;
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

TEST(RequestTest, RefusesShapesThatMakeNoAttention) {
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

TEST(RequestTest, RefusesBiasThatDoesNotBroadcast) {
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

TEST(RequestTest, RefusesBackwardThatLacksOrMixesInputs) {
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

TEST(RequestTest, RefusesLensThatDoNotFit) {
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

TEST(RequestTest, RefusesPositionsThatOverflow) {
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

TEST(RequestTest, RefusesScalarsOutOfRange) {
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

TEST(RequestTest, RefusesOutputsItCannotGive) {
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

TEST(RequestTest, AcceptsSizesOfZero) {
  for (int dimension : {0, 1}) {
    RequestSpec spec = ForwardSpec();
    for (TensorId id : {Q, K, V}) spec.inputs[id]->shape[dimension] = 0;
    const auto request = Request::Create(spec);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ((*request)->output_bytes(), 0);
    EXPECT_EQ((*request)->flops(), 0);
  }
  RequestSpec no_heads = ForwardSpec();
  for (TensorId id : {Q, K, V}) no_heads.inputs[id]->shape[2] = 0;
  EXPECT_TRUE(Request::Create(no_heads).ok());
  RequestSpec no_keys = ForwardSpec();
  no_keys.inputs[K]->shape[1] = no_keys.inputs[V]->shape[1] = 0;
  EXPECT_TRUE(Request::Create(no_keys).ok());
  RequestSpec packed = PackedSpec();
  for (TensorId id : {Q, K, V}) packed.inputs[id]->shape[0] = 0;
  packed.q_lens = packed.kv_lens = {};
  const auto request = Request::Create(packed);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE((*request)->Bind({}, nullptr)->forward.empty());
}

TEST(RequestTest, AcceptsManySequencesOfNothing) {
  RequestSpec spec = ForwardSpec();
  for (TensorId id : {Q, K, V}) {
    spec.inputs[id]->shape[0] = int64_t{1} << 31;
    spec.inputs[id]->shape[1] = 0;
    spec.inputs[id]->shape[2] = 1;
  }
  const auto request = Request::Create(spec);
  ASSERT_TRUE(request.ok()) << request.status();
  const auto bound = (*request)->Bind({}, nullptr);
  ASSERT_EQ(bound->forward.size(), 1);
  EXPECT_EQ(bound->forward[0].problem.batch, 0);  // nothing to do
}

TEST(RequestTest, AcceptsPositionsUpToTheirEnds) {
  RequestSpec spec = ForwardSpec();
  spec.q_start = {kMaxPosition - 4};
  spec.kv_start = {-kMaxPosition};
  spec.kv_stride = kMaxPosition / 3;
  EXPECT_TRUE(Request::Create(spec).ok());
  spec.mask.left = spec.mask.right = kMost;
  EXPECT_TRUE(Request::Create(spec).ok());
}

TEST(RequestTest, SumsBytesOfWhatIsGivenAndWanted) {
  const auto forward = Request::Create(ForwardSpec());
  ASSERT_TRUE(forward.ok());
  EXPECT_EQ((*forward)->input_bytes(),
            2 * (2 * 5 * 4 * 8 + 2 * 7 * 2 * 8 + 2 * 7 * 2 * 6));
  EXPECT_EQ((*forward)->output_bytes(), 2 * (2 * 5 * 4 * 6) + 4 * (2 * 4 * 5));

  RequestSpec spec = BackwardSpec();
  spec.outputs[TensorId::kDK].want = false;
  spec.outputs[TensorId::kDQ].dtype = DType::kF32;
  const auto backward = Request::Create(spec);
  ASSERT_TRUE(backward.ok());
  EXPECT_FALSE((*backward)->output(TensorId::kDK).present);
  EXPECT_EQ((*backward)->output_bytes(),
            4 * (2 * 5 * 4 * 8) + 2 * (2 * 7 * 2 * 6));
}

TEST(RequestTest, CountsVisiblePairs) {
  RequestSpec spec = ForwardSpec();
  EXPECT_EQ((*Request::Create(spec))->flops(), 2.0 * 2 * 4 * 5 * 7 * (8 + 6));
  spec.mask.causal = true;  // rows see 3, 4, 5, 6 and 7 columns
  EXPECT_EQ((*Request::Create(spec))->flops(), 2.0 * 2 * 4 * 25 * (8 + 6));
  spec.q_lens = {2, 5};  // and then 6 and 7 in the first sequence
  EXPECT_EQ((*Request::Create(spec))->flops(), 2.0 * 4 * (13 + 25) * (8 + 6));
  RequestSpec backward = BackwardSpec();
  EXPECT_EQ((*Request::Create(backward))->flops(),
            2.5 * 2 * 2 * 4 * 5 * 7 * (8 + 6));
}

TEST(RequestTest, EstimatesPairsOfManyRows) {
  RequestSpec spec;
  const int64_t len = 100'000;
  for (TensorId id : {Q, K, V}) spec.inputs[id] = Tensor({1, len, 1, 64});
  spec.mask.causal = true;
  const double exact = 2.0 * len * (len + 1) / 2 * 128;
  // Columns grow linearly, so that rows amid equal steps are off by a rounding.
  EXPECT_NEAR((*Request::Create(spec))->flops() / exact, 1, 1.0 / len);
}

TEST(RequestTest, BindsOneProblemOfAPaddedBatch) {
  RequestSpec spec = ForwardSpec();
  spec.layout = Layout::kBhsd;
  for (TensorId id : {Q, K, V})
    std::swap(spec.inputs[id]->shape[1], spec.inputs[id]->shape[2]);
  spec.inputs[TensorId::kBias] = Tensor({2, 1, 5, 7});
  spec.kv_lens = {7, 3};
  spec.kv_start = {10, 20};
  spec.q_start = {4};
  const auto request = Request::Create(spec);
  ASSERT_TRUE(request.ok()) << request.status();
  std::byte memory[1];
  TensorPointers pointers;
  for (TensorId id : {Q, K, V, TensorId::kBias, TensorId::kO, TensorId::kLse})
    pointers[id] = memory;
  CancelToken token;
  const auto bound = (*request)->Bind(pointers, &token);
  ASSERT_EQ(bound->forward.size(), 1);
  ASSERT_TRUE(bound->backward.empty());
  const ForwardArgs& args = bound->forward[0];
  const Problem& p = args.problem;
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.q_len, 5);
  EXPECT_EQ(p.group(), 2);
  EXPECT_EQ(p.q.token_stride, 8);
  EXPECT_EQ(p.q.head_stride, 5 * 8);
  EXPECT_EQ(p.q.batch_stride, 4 * 5 * 8);
  EXPECT_EQ(p.q_start, 4);
  EXPECT_EQ(p.scale, 1 / std::sqrt(8.0f));
  EXPECT_EQ(p.cancel, &token);
  EXPECT_EQ(p.bias.batch_stride, 35);
  EXPECT_EQ(p.bias.head_stride, 0);
  EXPECT_EQ(p.bias.row_stride, 7);
  ASSERT_EQ(p.kv.size(), 1);
  EXPECT_EQ(KvLen(p, 1), 3);
  EXPECT_THAT(p.kv[0].positions.starts, ::testing::ElementsAre(10, 20));
  EXPECT_EQ(args.o.head_stride, 5 * 6);
  EXPECT_EQ(args.lse.head_stride, 5);
  EXPECT_EQ(args.lse.batch_stride, 20);
}

TEST(RequestTest, BindsAProblemForEverySequenceOfAPackedBatch) {
  RequestSpec spec = PackedSpec();
  spec.inputs[TensorId::kBias] = Tensor({2, 4, 3, 6}, DType::kF32);
  spec.q_start = {100, 200};
  const auto request = Request::Create(spec);
  ASSERT_TRUE(request.ok()) << request.status();
  std::vector<std::byte> memory(4096);
  TensorPointers pointers;
  for (TensorId id : {Q, K, V, TensorId::kBias, TensorId::kO, TensorId::kLse})
    pointers[id] = memory.data();
  const auto bound = (*request)->Bind(pointers, nullptr);
  ASSERT_EQ(bound->forward.size(), 2);
  const ForwardArgs& args = bound->forward[1];
  const Problem& p = args.problem;
  const auto offset = [&](const void* data) {
    return static_cast<const std::byte*>(data) - memory.data();
  };
  EXPECT_EQ(p.batch, 1);
  EXPECT_EQ(p.q_len, 2);
  EXPECT_EQ(KvLen(p, 0), 6);
  EXPECT_THAT(p.q_starts, ::testing::ElementsAre(200));
  EXPECT_EQ(offset(p.q.data), 3 * 4 * 8 * 2);
  EXPECT_EQ(offset(p.kv[0].k.data), 1 * 2 * 8 * 2);
  EXPECT_EQ(offset(p.kv[0].v.data), 1 * 2 * 6 * 2);
  EXPECT_EQ(offset(p.bias.data), 4 * 3 * 6 * 4);
  EXPECT_EQ(offset(args.o.data), 3 * 4 * 6 * 2);
  EXPECT_EQ(offset(args.lse.data), 3 * 4);
  EXPECT_EQ(args.lse.head_stride, 5);
}

TEST(RequestTest, BindsWithoutMemoryAndLeavesOutUnwantedOutputs) {
  RequestSpec spec = BackwardSpec();
  spec.outputs[TensorId::kDV].want = false;
  const auto request = Request::Create(spec);
  ASSERT_TRUE(request.ok());
  TensorPointers pointers;
  std::byte memory[1];
  for (int i = 0; i < kTensorIds; ++i)
    pointers[static_cast<TensorId>(i)] = memory;
  const auto bound = (*request)->Bind(pointers, nullptr);
  EXPECT_TRUE(bound->backward[0].problem.kv[0].dk);
  EXPECT_FALSE(bound->backward[0].problem.kv[0].dv);
  EXPECT_FALSE(bound->backward[0].delta);
  const auto shapes = (*request)->Bind({}, nullptr);
  EXPECT_EQ(shapes->backward[0].problem.head_dim, 8);
  EXPECT_FALSE(shapes->backward[0].problem.q);
}

}  // namespace
}  // namespace attnd
