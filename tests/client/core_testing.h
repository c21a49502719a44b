#ifndef ATTND_TESTS_CLIENT_CORE_TESTING_H_
#define ATTND_TESTS_CLIENT_CORE_TESTING_H_

// A client over a transport and an executor that the test steps by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "absl/status/status.h"
#include "attn/v1/attention.pb.h"
#include "client/core.h"
#include "proto/wire/status.h"
#include "tests/client/fake_transport.h"
#include "tests/client/manual_executor.h"

namespace attnd::client {

inline std::string RandomBytes(size_t size) {
  static absl::BitGen rng;
  std::string bytes(size, '\0');
  for (char& c : bytes) c = absl::Uniform<uint8_t>(rng);
  return bytes;
}

class CoreTest : public ::testing::Test {
 protected:
  CoreTest() { Reset({}); }

  void Reset(const ClientOptions& options) {
    auto transport = std::make_unique<FakeTransport>();
    auto executor = std::make_unique<ManualExecutor>();
    transport_ = transport.get();
    executor_ = executor.get();
    client_ = std::make_unique<CoreClient>(std::move(transport),
                                           std::move(executor), options);
  }

  // A forward of bf16 [2, 3, 4, 5] queries with values of 6.
  ForwardCall Call() {
    ForwardCall call;
    call.q = {DType::kBF16, {2, 3, 4, 5}, q_.data()};
    call.k = {DType::kBF16, {2, 7, 2, 5}, k_.data()};
    call.v = {DType::kBF16, {2, 7, 2, 6}, v_.data()};
    call.o = {DType::kF32, {2, 3, 4, 6}, o_.data()};
    call.lse = {DType::kF32, {2, 4, 3}, lse_.data()};
    return call;
  }

  // A response that fits that call.
  attn::v1::ForwardResponse GoodResponse() {
    attn::v1::ForwardResponse response;
    Fill(DType::kF32, {2, 3, 4, 6}, *response.mutable_o());
    Fill(DType::kF32, {2, 4, 3}, *response.mutable_lse());
    response.mutable_report()->set_device("cpu:0 test");
    response.mutable_report()->set_algorithm(
        attn::v1::ALGORITHM_FLASH_ATTENTION_1);
    response.mutable_report()->set_kernel("test/kernel");
    response.mutable_report()->set_batch_requests(3);
    response.mutable_report()->set_flops(1e9);
    response.mutable_report()->mutable_phases()->set_queue_ns(1);
    response.mutable_report()->mutable_phases()->set_upload_ns(2);
    response.mutable_report()->mutable_phases()->set_compute_ns(3);
    response.mutable_report()->mutable_phases()->set_download_ns(4);
    return response;
  }
  static void Fill(DType dtype, const std::vector<int64_t>& shape,
                   attn::v1::Tensor& tensor) {
    int64_t bytes = SizeOf(dtype);
    tensor.set_dtype(dtype == DType::kF32 ? attn::v1::DATA_TYPE_F32
                                          : attn::v1::DATA_TYPE_BF16);
    for (const int64_t extent : shape) {
      tensor.add_shape(extent);
      bytes *= extent;
    }
    tensor.set_data(RandomBytes(bytes));
  }

  absl::Status ForwardWith(const std::string& response) {
    transport_->answer =
        [&](const FakeTransport::Attempt&) -> Transport::Result {
      return std::make_unique<FakeResponse>(response);
    };
    return client_->Forward(Call(), {}).status();
  }

  // INTERNAL naming `field`.
  void ExpectBadResponse(const attn::v1::ForwardResponse& response,
                         const std::string& field) {
    const absl::Status status = ForwardWith(response.SerializeAsString());
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(field));
    ASSERT_EQ(wire::FieldViolations(status).size(), 1);
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field);
  }

  // Refused before anything is sent.
  void ExpectRefused(const ForwardCall& call, const std::string& field,
                     const CallOptions& options = {}) {
    const size_t sent = transport_->size();
    absl::Status status;
    client_->ForwardAsync(call, options, [&](absl::StatusOr<Report> report) {
      status = report.status();
    });
    executor_->RunReady();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    ASSERT_EQ(wire::FieldViolations(status).size(), 1) << status;
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field) << status;
    EXPECT_EQ(transport_->size(), sent);
  }

  std::string q_ = RandomBytes(2 * 3 * 4 * 5 * 2);
  std::string k_ = RandomBytes(2 * 7 * 2 * 5 * 2);
  std::string v_ = RandomBytes(2 * 7 * 2 * 6 * 2);
  std::string o_ = std::string(2 * 3 * 4 * 6 * 4, '\xff');
  std::string lse_ = std::string(2 * 4 * 3 * 4, '\xff');
  FakeTransport* transport_ = nullptr;
  ManualExecutor* executor_ = nullptr;
  std::unique_ptr<CoreClient> client_;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_CORE_TESTING_H_
