// Gradients from the server library on real GPUs, over real gRPC, judged by
// float64.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_backend.h"
#include "proto/wire/status.h"
#include "server/server.h"
#include "tests/integration/gpu_server.h"
#include "tests/integration/rpc.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/random_problem.h"

namespace attnd::testing {
namespace {

namespace pb = ::attn::v1;
using ::testing::AssertionResult;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// [batch, tokens, heads, dim]; absent if the message is.
OwnedTensor ToTensor(const pb::Tensor& t) {
  if (t.shape_size() != 4) return {};
  OwnedTensor tensor(ToDType(t.dtype()), t.shape(0), t.shape(1), t.shape(2),
                     t.shape(3));
  std::memcpy(tensor.view().data, t.data().data(), t.data().size());
  return tensor;
}

// [batch, heads, len]
OwnedRows ToRows(const pb::Tensor& t) {
  if (t.shape_size() != 3) return {};
  OwnedRows rows(t.shape(0), t.shape(1), t.shape(2));
  std::memcpy(rows.view().data, t.data().data(), t.data().size());
  return rows;
}

// A request's problem in memory of its own. No lengths, positions or bias.
struct OwnedBackward {
  explicit OwnedBackward(const pb::BackwardRequest& r)
      : q(ToTensor(r.q())),
        k(ToTensor(r.k())),
        v(ToTensor(r.v())),
        d_o(ToTensor(r.d_o())),
        o(ToTensor(r.o())),
        lse(ToRows(r.lse())),
        delta(ToRows(r.delta())),
        d_lse(ToRows(r.d_lse())) {
    segment.k = std::as_const(k).view();
    segment.v = std::as_const(v).view();
    segment.len = k.tokens();
    Problem& p = args.problem;
    p.batch = q.batch();
    p.q_len = q.tokens();
    p.q_heads = q.heads();
    p.kv_heads = k.heads();
    p.head_dim = q.dim();
    p.value_dim = v.dim();
    p.q = std::as_const(q).view();
    p.kv = {&segment, 1};
    p.mask.causal = r.attention().mask().causal();
    p.scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
    args.d_o = std::as_const(d_o).view();
    args.o = std::as_const(o).view();
    args.lse = std::as_const(lse).view();
    args.delta = std::as_const(delta).view();
    args.d_lse = std::as_const(d_lse).view();
  }
  OwnedBackward(const OwnedBackward&) = delete;
  OwnedBackward& operator=(const OwnedBackward&) = delete;

  OwnedTensor q, k, v, d_o, o;
  OwnedRows lse, delta, d_lse;
  KvSegment segment;
  BackwardArgs args;
};

AssertionResult IsAccurate(const pb::BackwardRequest& request,
                           const pb::BackwardResponse& response) {
  const OwnedBackward problem(request);
  RandomProblem::BackwardOutputs got;
  got.dq = ToTensor(response.dq());
  got.dk.push_back(ToTensor(response.dk()));
  got.dv.push_back(ToTensor(response.dv()));
  return CheckGradients(problem.args, got, Slack::kApproximations);
}

class GpuBackwardServingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
    Serve(StartOnFirstGpu());
  }
  void Serve(std::unique_ptr<server::Server> server) {
    server_ = std::move(server);
    channel_ = ConnectTo(*server_);
  }

  // With what the server's own forward gives.
  pb::BackwardRequest MakeBackward(const Shape& s, pb::DataType type) {
    const pb::ForwardRequest forward = MakeForward(s, type);
    pb::ForwardResponse response;
    const absl::Status status = Forward(channel_, forward, response);
    EXPECT_TRUE(status.ok()) << status;
    pb::BackwardRequest request;
    *request.mutable_q() = forward.q();
    *request.mutable_k() = forward.k();
    *request.mutable_v() = forward.v();
    *request.mutable_attention() = forward.attention();
    *request.mutable_d_o() =
        RandomTensor({s.batch, s.q_len, s.q_heads, s.value_dim}, type);
    *request.mutable_o() = response.o();
    *request.mutable_lse() = response.lse();
    return request;
  }

  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GpuBackwardServingTest, GradientsAreAccurate) {
  for (const Shape& shape : kShapes) {
    for (pb::DataType type : kTypes) {
      for (bool deterministic : {false, true}) {
        SCOPED_TRACE(absl::StrCat("q_len ", shape.q_len, " head_dim ",
                                  shape.head_dim, " type ", type,
                                  " deterministic ", deterministic));
        pb::BackwardRequest request = MakeBackward(shape, type);
        request.mutable_options()->set_deterministic(deterministic);
        pb::BackwardResponse response;
        const absl::Status status = Backward(channel_, request, response);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(IsAccurate(request, response));
        EXPECT_THAT(response.report().device(), StartsWith("cuda:0 NVIDIA"));
        EXPECT_THAT(response.report().kernel(), StartsWith("cuda/"));
        EXPECT_GT(response.report().phases().compute_ns(), 0);
      }
    }
  }
}

TEST_F(GpuBackwardServingTest, SoTheyAreFromDeltaAndWithAGradientOfLse) {
  constexpr Shape kShape = {2, 70, 90, 4, 2, 64, 64, true};
  for (pb::DataType type : kTypes) {
    pb::BackwardRequest request = MakeBackward(kShape, type);
    request.clear_o();
    *request.mutable_delta() = RandomTensor(
        {kShape.batch, kShape.q_heads, kShape.q_len}, pb::DATA_TYPE_F32);
    *request.mutable_d_lse() = RandomTensor(
        {kShape.batch, kShape.q_heads, kShape.q_len}, pb::DATA_TYPE_F32);
    pb::BackwardResponse response;
    const absl::Status status = Backward(channel_, request, response);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(IsAccurate(request, response)) << "type " << type;
  }
}

TEST_F(GpuBackwardServingTest, OutputsAreOfTheTypesAskedForAndMayBeUnwanted) {
  pb::BackwardRequest request =
      MakeBackward({1, 100, 200, 4, 2, 128, 64}, pb::DATA_TYPE_BF16);
  request.mutable_dq()->set_dtype(pb::DATA_TYPE_F32);
  request.mutable_dk()->set_want(false);
  pb::BackwardResponse response;
  absl::Status status = Backward(channel_, request, response);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(response.dq().dtype(), pb::DATA_TYPE_F32);
  EXPECT_FALSE(response.has_dk());
  EXPECT_EQ(response.dv().dtype(), pb::DATA_TYPE_BF16);
  EXPECT_TRUE(IsAccurate(request, response));
  request.mutable_dq()->set_want(false);
  status = Backward(channel_, request, response);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_FALSE(response.has_dq());
  EXPECT_TRUE(IsAccurate(request, response));
}

// The algorithms of the papers answer, or are refused, as the backend says.
TEST_F(GpuBackwardServingTest, AlgorithmsAnswerAsTheBackendSupportsThem) {
  auto gpus = CreateCudaBackends({});
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  const std::pair<pb::Algorithm, Algorithm> algorithms[] = {
      {pb::ALGORITHM_NAIVE, Algorithm::kNaive},
      {pb::ALGORITHM_ONLINE_SOFTMAX, Algorithm::kOnlineSoftmax},
      {pb::ALGORITHM_FLASH_ATTENTION_1, Algorithm::kFlashAttention1},
      {pb::ALGORITHM_FLASH_ATTENTION_2, Algorithm::kFlashAttention2}};
  for (const auto& [asked, algorithm] : algorithms) {
    for (pb::DataType type : kTypes) {
      SCOPED_TRACE(absl::StrCat("algorithm ", asked, " type ", type));
      pb::BackwardRequest request =
          MakeBackward({2, 100, 130, 4, 2, 64, 64, true}, type);
      request.mutable_options()->set_algorithm(asked);
      const OwnedBackward problem(request);
      const absl::Status supports = gpus->front()->Supports(
          Op::kBackward, problem.args.problem, {.algorithm = algorithm});
      pb::BackwardResponse response;
      const absl::Status status = Backward(channel_, request, response);
      EXPECT_EQ(status.code(), supports.code()) << status;
      if (!supports.ok()) {
        EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("backward"));
        continue;
      }
      EXPECT_TRUE(IsAccurate(request, response));
      EXPECT_EQ(response.report().algorithm(), asked);
    }
  }
}

// One request of either kind again and again among all others.
struct Repeated {
  pb::ForwardRequest forward;
  pb::BackwardRequest backward;
  pb::ForwardResponse forward_alone;
  pb::BackwardResponse backward_alone;
};

bool AreAlike(const pb::BackwardResponse& a, const pb::BackwardResponse& b) {
  return a.dq().data() == b.dq().data() && a.dk().data() == b.dk().data() &&
         a.dv().data() == b.dv().data();
}

// Both passes share lanes, streams and workspaces.
TEST_F(GpuBackwardServingTest, AnswersAreTheSameBitsUnderMixedLoad) {
  std::vector<Repeated> all;
  for (const Shape& shape : kShapes) {
    for (pb::DataType type : {pb::DATA_TYPE_BF16, pb::DATA_TYPE_F32}) {
      Repeated& r = all.emplace_back();
      r.forward = MakeForward(shape, type);
      r.backward = MakeBackward(shape, type);
      r.backward.mutable_options()->set_deterministic(true);
      ASSERT_TRUE(Forward(channel_, r.forward, r.forward_alone).ok());
      ASSERT_TRUE(Backward(channel_, r.backward, r.backward_alone).ok());
    }
  }
  constexpr size_t kCalls = 200;
  std::vector<std::unique_ptr<PendingForward>> forward;
  std::vector<std::unique_ptr<PendingBackward>> backward;
  std::vector<std::unique_ptr<PendingBackward>> in_any_order;
  for (size_t i = 0; i < kCalls; ++i) {
    const Repeated& r = all[i % all.size()];
    forward.push_back(std::make_unique<PendingForward>(channel_, r.forward));
    backward.push_back(std::make_unique<PendingBackward>(channel_, r.backward));
    pb::BackwardRequest request = r.backward;
    request.mutable_options()->set_deterministic(false);
    in_any_order.push_back(
        std::make_unique<PendingBackward>(channel_, std::move(request)));
  }
  int most = 0;
  for (size_t i = 0; i < kCalls; ++i) {
    SCOPED_TRACE(i);
    const Repeated& r = all[i % all.size()];
    ASSERT_TRUE(forward[i]->Wait().ok()) << forward[i]->Wait();
    ASSERT_TRUE(backward[i]->Wait().ok()) << backward[i]->Wait();
    ASSERT_TRUE(in_any_order[i]->Wait().ok()) << in_any_order[i]->Wait();
    const pb::ForwardResponse& got = forward[i]->response();
    EXPECT_TRUE(got.o().data() == r.forward_alone.o().data());
    EXPECT_TRUE(got.lse().data() == r.forward_alone.lse().data());
    EXPECT_TRUE(AreAlike(backward[i]->response(), r.backward_alone));
    most = std::max(most, backward[i]->response().report().batch_requests());
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(IsAccurate(all[i].backward, all[i].backward_alone)) << i;
    EXPECT_TRUE(IsAccurate(all[i].backward, in_any_order[i]->response())) << i;
  }
  RecordProperty("largest_group", most);
}

TEST_F(GpuBackwardServingTest, NoDeviceMemoryIsResourceExhausted) {
  // The account lets through what the device has not.
  Serve(StartOnFirstGpu(int64_t{1} << 40));
  // What is loaded once is loaded before.
  pb::BackwardRequest small =
      MakeBackward({1, 50, 50, 1, 1, 8, 8}, pb::DATA_TYPE_F16);
  small.mutable_options()->set_algorithm(pb::ALGORITHM_NAIVE);
  pb::BackwardResponse response;
  absl::Status status = Backward(channel_, small, response);
  ASSERT_TRUE(status.ok()) << status;
  // Scores of 8 GiB and more, over little input.
  pb::BackwardRequest request =
      MakeBackward({1, 16384, 16384, 16, 16, 8, 8}, pb::DATA_TYPE_F16);
  request.mutable_options()->set_algorithm(pb::ALGORITHM_NAIVE);
  {
    const Hog hog;
    status = Backward(channel_, request, response);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE(wire::RetryDelay(status).has_value()) << status;
    EXPECT_EQ(Health(channel_), "SERVING");
  }
  status = Backward(channel_, request, response);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace attnd::testing
