// Exchanges with a server on a real GPU: what travels in chunks has the bits
// that the same call has in one message.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attnd/client.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/hang_limit.h"
#include "tests/integration/gpu_server.h"

namespace attnd::testing {
namespace {

using client::DType;
using client::TransportKind;
using Words = std::vector<uint16_t>;

// Finite bf16 values of any sign, between 1/16 and 1.
Words RandomWords(int64_t size, std::mt19937& random) {
  Words words(size);
  for (uint16_t& word : words) {
    word =
        static_cast<uint16_t>(0x3d80 + random() % 0x200 + (random() % 2 << 15));
  }
  return words;
}

class GpuExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
    gpu_ = StartOnFirstGpu();
    client::ClientOptions options;
    options.connections = 4;
    client_ = client::Client::Create(
                  "127.0.0.1:" + std::to_string(gpu_->port()), options)
                  .value();
  }
  client::CallOptions By(TransportKind transport) {
    client::CallOptions options;
    options.timeout = kHangLimit;
    options.transport = transport;
    return options;
  }

  std::unique_ptr<server::Server> gpu_;
  std::unique_ptr<client::Client> client_;
};

TEST_F(GpuExchangeTest, ForwardsHaveTheBitsOfUnaryOnes) {
  std::mt19937 random(1);
  for (const auto& [batch, q_len, kv_len, heads, dim] :
       std::vector<std::array<int64_t, 5>>{{1, 4096, 4096, 16, 128},
                                           {2, 1000, 3001, 8, 128},
                                           {1, 1, 70000, 8, 128},
                                           {3, 777, 777, 4, 64},
                                           {1, 3, 0, 2, 64},
                                           {1, 2048, 2048, 8, 256}}) {
    const std::vector<int64_t> q_shape = {batch, q_len, heads, dim};
    const std::vector<int64_t> kv_shape = {batch, kv_len, heads, dim};
    const Words q = RandomWords(batch * q_len * heads * dim, random);
    const Words k = RandomWords(batch * kv_len * heads * dim, random);
    const Words v = RandomWords(batch * kv_len * heads * dim, random);
    Words o[2];
    std::vector<float> lse[2];
    for (int way = 0; way < 2; ++way) {
      o[way].assign(q.size(), 0x7fc1);
      lse[way].assign(batch * heads * q_len, -1);
      client::ForwardCall call;
      call.q = {DType::kBF16, q_shape, q.data()};
      call.k = {DType::kBF16, kv_shape, k.data()};
      call.v = {DType::kBF16, kv_shape, v.data()};
      call.attention.mask.causal = true;
      call.o = {DType::kBF16, q_shape, o[way].data()};
      call.lse = {DType::kF32, {batch, heads, q_len}, lse[way].data()};
      const auto report = client_->Forward(
          call, By(way ? TransportKind::kStream : TransportKind::kUnary));
      ASSERT_TRUE(report.ok()) << report.status();
    }
    EXPECT_EQ(o[0], o[1]) << q_len << " x " << kv_len;
    EXPECT_EQ(lse[0], lse[1]) << q_len << " x " << kv_len;
  }
}

TEST_F(GpuExchangeTest, DeterministicBackwardsHaveTheBitsOfUnaryOnes) {
  std::mt19937 random(2);
  const std::vector<int64_t> shape = {2, 1500, 8, 128};
  const int64_t size = 2 * 1500 * 8 * 128;
  const Words q = RandomWords(size, random), k = RandomWords(size, random);
  const Words v = RandomWords(size, random), d_o = RandomWords(size, random);
  Words o(size);
  std::vector<float> lse(2 * 8 * 1500);
  client::ForwardCall forward;
  forward.q = {DType::kBF16, shape, q.data()};
  forward.k = {DType::kBF16, shape, k.data()};
  forward.v = {DType::kBF16, shape, v.data()};
  forward.o = {DType::kBF16, shape, o.data()};
  forward.lse = {DType::kF32, {2, 8, 1500}, lse.data()};
  ASSERT_TRUE(client_->Forward(forward, By(TransportKind::kStream)).ok());
  Words dq[2], dk[2], dv[2];
  for (int way = 0; way < 2; ++way) {
    for (Words* gradient : {&dq[way], &dk[way], &dv[way]}) {
      gradient->assign(size, 0x7fc1);
    }
    client::BackwardCall call;
    call.q = forward.q;
    call.k = forward.k;
    call.v = forward.v;
    call.d_o = {DType::kBF16, shape, d_o.data()};
    call.lse = {DType::kF32, {2, 8, 1500}, lse.data()};
    call.o = {DType::kBF16, shape, o.data()};
    call.deterministic = true;
    call.dq = {DType::kBF16, shape, dq[way].data()};
    call.dk = {DType::kBF16, shape, dk[way].data()};
    call.dv = {DType::kBF16, shape, dv[way].data()};
    const auto report = client_->Backward(
        call, By(way ? TransportKind::kStream : TransportKind::kUnary));
    ASSERT_TRUE(report.ok()) << report.status();
  }
  EXPECT_EQ(dq[0], dq[1]);
  EXPECT_EQ(dk[0], dk[1]);
  EXPECT_EQ(dv[0], dv[1]);
}

}  // namespace
}  // namespace attnd::testing
