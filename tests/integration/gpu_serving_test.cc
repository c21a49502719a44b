// The server library on real GPUs, over real gRPC, next to the reference.

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
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "proto/wire/status.h"
#include "server/program/devices.h"
#include "server/server.h"
#include "tests/hang_limit.h"
#include "tests/integration/gpu_server.h"
#include "tests/integration/http_get.h"
#include "tests/integration/rpc.h"
#include "tests/kernels/cuda/device_fault.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

namespace pb = ::attn::v1;
using server::Server;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Both of f32.
float LargestDifference(const std::string& a, const std::string& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i + 4 <= std::min(a.size(), b.size()); i += 4) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + i, 4);
    std::memcpy(&y, b.data() + i, 4);
    if (x == y) continue;  // infinities
    const float difference = std::abs(x - y);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

class GpuServingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
    gpu_ = StartOnFirstGpu();
    channel_ = ConnectTo(*gpu_);
    std::vector<std::unique_ptr<Backend>> cpus;
    cpus.push_back(CreateCpuBackend({}).value());
    // With the same limits, so that refusals have the same words.
    cpu_ = StartServer(std::move(cpus), server::DeviceOptions::Kind::kCuda,
                       int64_t{4} << 30);
    reference_ = ConnectTo(*cpu_);
  }

  // As the naive algorithm of the reference has it.
  pb::ForwardResponse Reference(pb::ForwardRequest request) {
    request.mutable_options()->set_algorithm(pb::ALGORITHM_NAIVE);
    pb::ForwardResponse response;
    const absl::Status status = Forward(reference_, request, response);
    EXPECT_TRUE(status.ok()) << status;
    return response;
  }

  void ExpectLikeReference(const pb::ForwardRequest& request,
                           const pb::ForwardResponse& got) {
    const float tolerance = request.q().dtype() == pb::DATA_TYPE_F32   ? 1e-4
                            : request.q().dtype() == pb::DATA_TYPE_F16 ? 5e-3
                                                                       : 4e-2;
    const pb::ForwardResponse expected = Reference(request);
    EXPECT_LE(LargestDifference(got.o().data(), expected.o().data()),
              tolerance);
    EXPECT_LE(LargestDifference(got.lse().data(), expected.lse().data()), 1e-4);
  }

  std::unique_ptr<Server> gpu_, cpu_;
  std::shared_ptr<grpc::Channel> channel_, reference_;
};

TEST_F(GpuServingTest, ForwardAgreesWithTheReference) {
  for (const Shape& shape : kShapes) {
    for (pb::DataType type : kTypes) {
      SCOPED_TRACE(absl::StrCat("q_len ", shape.q_len, " head_dim ",
                                shape.head_dim, " type ", type));
      const pb::ForwardRequest request = MakeForward(shape, type);
      pb::ForwardResponse response;
      const absl::Status status = Forward(channel_, request, response);
      ASSERT_TRUE(status.ok()) << status;
      ExpectLikeReference(request, response);
      EXPECT_THAT(response.report().device(), StartsWith("cuda:0 NVIDIA"));
      EXPECT_GT(response.report().phases().queue_ns(), 0);
    }
  }
}

TEST_F(GpuServingTest, SoDoTheAlgorithmsOfThePapers) {
  for (pb::Algorithm algorithm :
       {pb::ALGORITHM_NAIVE, pb::ALGORITHM_FLASH_ATTENTION_1,
        pb::ALGORITHM_FLASH_ATTENTION_2}) {
    for (pb::DataType type : kTypes) {
      SCOPED_TRACE(absl::StrCat("algorithm ", algorithm, " type ", type));
      pb::ForwardRequest request = MakeForward(kShapes[2], type);
      request.mutable_options()->set_algorithm(algorithm);
      pb::ForwardResponse response;
      const absl::Status status = Forward(channel_, request, response);
      ASSERT_TRUE(status.ok()) << status;
      ExpectLikeReference(request, response);
      EXPECT_EQ(response.report().algorithm(), algorithm);
      EXPECT_THAT(response.report().kernel(), StartsWith("cuda/"));
      EXPECT_GT(response.report().phases().upload_ns(), 0);
      EXPECT_GT(response.report().phases().compute_ns(), 0);
      EXPECT_GT(response.report().phases().download_ns(), 0);
    }
  }
}

TEST_F(GpuServingTest, AnswersAreTheSameBitsUnderLoad) {
  std::vector<pb::ForwardRequest> requests;
  std::vector<pb::ForwardResponse> alone;
  for (const Shape& shape : kShapes) {
    requests.push_back(MakeForward(shape, pb::DATA_TYPE_BF16));
    alone.emplace_back();
    ASSERT_TRUE(Forward(channel_, requests.back(), alone.back()).ok());
  }
  std::vector<std::unique_ptr<PendingForward>> calls;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(std::make_unique<PendingForward>(
        channel_, requests[i % requests.size()]));
  }
  int most = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    ASSERT_TRUE(calls[i]->Wait().ok()) << calls[i]->Wait();
    const pb::ForwardResponse& got = calls[i]->response();
    const pb::ForwardResponse& expected = alone[i % requests.size()];
    EXPECT_TRUE(got.o().data() == expected.o().data()) << i;
    EXPECT_TRUE(got.lse().data() == expected.lse().data()) << i;
    most = std::max(most, got.report().batch_requests());
  }
  RecordProperty("largest_group", most);
}

TEST_F(GpuServingTest, BadRequestsAreRefusedAsOnTheCpu) {
  for (const server::BadRequest& bad : server::BadRequests()) {
    const absl::Status status = RawCall(channel_, bad.op, bad.bytes);
    EXPECT_EQ(server::Mismatch(bad, status), "") << bad.name << status;
    EXPECT_EQ(status, RawCall(reference_, bad.op, bad.bytes)) << bad.name;
  }
  EXPECT_EQ(Health(channel_), "SERVING");
}

TEST_F(GpuServingTest, EveryoneIsToldWhichDeviceItIs) {
  pb::GetServerInfoResponse info;
  grpc::ClientContext context;
  const auto stub = pb::AttentionService::NewStub(channel_);
  ASSERT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).kind(), "cuda");
  EXPECT_EQ(info.devices(0).index(), 0);
  EXPECT_THAT(info.devices(0).name(), StartsWith("NVIDIA"));
  EXPECT_THAT(gpu_->Describe(),
              ::testing::Contains(HasSubstr("device cuda:0 NVIDIA")));
  EXPECT_THAT(HttpGet(gpu_->metrics_port(), "/metrics"),
              HasSubstr("attnd_device_in_service{device=\"cuda:0\"} 1"));
}

TEST_F(GpuServingTest, NoDeviceMemoryIsResourceExhaustedWithARetryDelay) {
  // The account lets through what the device has not.
  gpu_ = StartOnFirstGpu(int64_t{1} << 40);
  channel_ = ConnectTo(*gpu_);
  // Scores of 8 GiB and more, over little input.
  pb::ForwardRequest request =
      MakeForward({1, 16384, 16384, 16, 16, 8, 8}, pb::DATA_TYPE_F16);
  request.mutable_options()->set_algorithm(pb::ALGORITHM_NAIVE);
  pb::ForwardResponse response;
  // What is loaded once is loaded before.
  pb::ForwardRequest small = MakeForward(kShapes[1], pb::DATA_TYPE_F16);
  small.mutable_options()->set_algorithm(pb::ALGORITHM_NAIVE);
  ASSERT_TRUE(Forward(channel_, small, response).ok());
  {
    const Hog hog;
    const absl::Status status = Forward(channel_, request, response);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE(wire::RetryDelay(status).has_value()) << status;
    EXPECT_EQ(Health(channel_), "SERVING");
  }
  const absl::Status status = Forward(channel_, request, response);
  EXPECT_TRUE(status.ok()) << status;
}

// In a process of its own, which it leaves without a GPU.
void ServeThroughAFault() {
  const std::unique_ptr<Server> server = StartOnFirstGpu();
  const std::shared_ptr<grpc::Channel> channel = ConnectTo(*server);
  const pb::ForwardRequest request =
      MakeForward(kShapes[1], pb::DATA_TYPE_BF16);
  pb::ForwardResponse response;
  Require(Forward(channel, request, response).ok(), "it serves");
  auto gpus = CreateCudaBackends({});
  Require(gpus.ok(), "there is a GPU");
  auto stream = gpus->front()->NewStream();
  Require(stream.ok(), "there is a stream");
  Require(absl::IsInternal(BreakDevice(**stream)), "it breaks");

  const absl::Status hit = Forward(channel, request, response);
  Require(absl::IsInternal(hit), "the batch that it hits fails");
  Require(Eventually([&] { return Health(channel) == "NOT_SERVING"; }),
          "health turns");
  Require(absl::IsUnavailable(Forward(channel, request, response)),
          "nothing is left to serve");
  Require(!server->stats().device_in_service[0], "the device is out");
  Require(server->stats().account_bytes == 0, "no byte is held");
  std::_Exit(0);
}

TEST(GpuServingDeathTest, AFaultTakesTheDeviceOutOfService) {
  if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ServeThroughAFault(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace attnd::testing
