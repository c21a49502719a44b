#include "kernels/request.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/request_specs.h"

namespace attnd {
namespace {

using testing::BackwardSpec;
using testing::ForwardSpec;
using testing::PackedSpec;
using testing::Tensor;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr TensorId Q = TensorId::kQ, K = TensorId::kK, V = TensorId::kV;

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

TEST(RequestTest, CountsPairsOfManyRows) {
  RequestSpec spec;
  const int64_t len = 100'000;
  for (TensorId id : {Q, K, V}) spec.inputs[id] = Tensor({1, len, 1, 64});
  spec.mask.causal = true;
  EXPECT_EQ((*Request::Create(spec))->flops(),
            2.0 * len * (len + 1) / 2 * (64 + 64));
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
