// Calls whose tensors lie in regions, with a server on a real GPU: they have
// the bits of calls whose tensors travel.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attnd/client.h"
#include "attnd/device_region.h"
#include "attnd/region.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/hang_limit.h"
#include "tests/integration/gpu_server.h"
#include "tests/integration/process.h"

namespace attnd::testing {
namespace {

using client::ConstTensor;
using client::Region;
using client::Tensor;
using client::TransportKind;
using Bytes = std::vector<std::byte>;

constexpr int64_t kRegionBytes = int64_t{64} << 20;

int64_t SizeOf(client::DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = client::SizeOf(dtype);
  for (int64_t dim : shape) bytes *= dim;
  return bytes;
}

// A tensor's bytes, finite in every type.
Bytes RandomBytes(client::DType dtype, const std::vector<int64_t>& shape,
                  std::mt19937& random) {
  Bytes bytes(SizeOf(dtype, shape));
  const auto fill = [&](auto word, int step, auto exponent) {
    for (size_t i = 0; i + sizeof(word) <= bytes.size(); i += sizeof(word)) {
      word = static_cast<decltype(word)>(exponent + random() % step);
      word |= static_cast<decltype(word)>(random() % 2)
              << (8 * sizeof(word) - 1);
      std::memcpy(bytes.data() + i, &word, sizeof(word));
    }
  };
  if (dtype == client::DType::kF32) fill(uint32_t{}, 1 << 24, 0x3d800000);
  if (dtype == client::DType::kF16) fill(uint16_t{}, 1 << 11, 0x2c00);
  if (dtype == client::DType::kBF16) fill(uint16_t{}, 1 << 8, 0x3d80);
  return bytes;
}

// A call's tensors: in memory of the test's, or in a region.
class Tensors {
 public:
  // `region` may be null.
  explicit Tensors(std::shared_ptr<Region> region)
      : region_(std::move(region)) {}
  ~Tensors() {
    for (const Tensor& tensor : placed_) region_->Free(tensor);
  }

  ConstTensor In(client::DType dtype, const std::vector<int64_t>& shape,
                 const Bytes& bytes) {
    if (region_ == nullptr) return {dtype, shape, bytes.data()};
    return {dtype, shape, Place(dtype, shape, bytes).data};
  }
  // All NaN at first.
  Tensor Out(client::DType dtype, const std::vector<int64_t>& shape,
             Bytes& bytes) {
    bytes.assign(SizeOf(dtype, shape), std::byte{0xff});
    if (region_ == nullptr) return {dtype, shape, bytes.data()};
    const Tensor tensor = Place(dtype, shape, bytes);
    results_.emplace_back(tensor.data, &bytes);
    return tensor;
  }
  // Brings results to where Out was told.
  void Fetch() {
    for (const auto& [from, to] : results_) {
      EXPECT_EQ(cudaMemcpy(to->data(), from, to->size(), cudaMemcpyDefault),
                cudaSuccess);
    }
  }

 private:
  Tensor Place(client::DType dtype, const std::vector<int64_t>& shape,
               const Bytes& bytes) {
    const auto tensor = region_->Allocate(dtype, shape);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    placed_.push_back(*tensor);
    EXPECT_EQ(
        cudaMemcpy(tensor->data, bytes.data(), bytes.size(), cudaMemcpyDefault),
        cudaSuccess);
    // It may return before the bytes are there.
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return *tensor;
  }

  const std::shared_ptr<Region> region_;
  std::vector<Tensor> placed_;
  std::vector<std::pair<const void*, Bytes*>> results_;
};

class GpuRegionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
    auto gpus = CreateCudaBackends({});
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    gpus->resize(1);
    server::ServerOptions options;
    options.regions.socket = folder_.File("regions");
    options.regions.memory_bytes = kRegionBytes;
    options.scheduler =
        server::SchedulerDefaults(server::DeviceOptions::Kind::kCuda);
    auto server = server::Server::Start(options, *std::move(gpus));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ =
        client::Client::Create("127.0.0.1:" + std::to_string(server_->port()))
            .value();
    auto host = Region::Lease(options.regions.socket, kRegionBytes);
    ASSERT_TRUE(host.ok()) << host.status();
    auto device =
        client::AllocateDeviceRegion(options.regions.socket, kRegionBytes, 0);
    ASSERT_TRUE(device.ok()) << device.status();
    regions_ = {nullptr, *host, *device};
    client_->AddRegion(*host);
    client_->AddRegion(*device);
  }

  // Of a call whose tensors lie in regions_[way].
  static client::CallOptions By(size_t way) {
    client::CallOptions options;
    options.timeout = kHangLimit;
    options.transport =
        way == 0 ? TransportKind::kUnary : TransportKind::kRegion;
    return options;
  }
  void Expect(const absl::StatusOr<client::Report>& report, size_t way) {
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->fallback, "");
    EXPECT_EQ(report->transport,
              way == 0 ? TransportKind::kUnary : TransportKind::kRegion);
  }

  const TempFolder folder_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<client::Client> client_;
  std::vector<std::shared_ptr<Region>> regions_;  // none, host's, the GPU's
  std::mt19937 random_{1};
};

constexpr client::DType kDTypes[] = {client::DType::kF32, client::DType::kF16,
                                     client::DType::kBF16};

TEST_F(GpuRegionTest, ForwardsHaveTheBitsOfThoseThatTravel) {
  for (const Shape& s : kShapes) {
    for (client::DType dtype : kDTypes) {
      const std::vector<int64_t> q_shape = {s.batch, s.q_len, s.q_heads,
                                            s.head_dim};
      const std::vector<int64_t> k_shape = {s.batch, s.kv_len, s.kv_heads,
                                            s.head_dim};
      std::vector<int64_t> v_shape = k_shape, o_shape = q_shape;
      v_shape[3] = o_shape[3] = s.value_dim;
      const Bytes q = RandomBytes(dtype, q_shape, random_);
      const Bytes k = RandomBytes(dtype, k_shape, random_);
      const Bytes v = RandomBytes(dtype, v_shape, random_);
      Bytes o[3], lse[3];
      for (size_t way = 0; way < regions_.size(); ++way) {
        Tensors tensors(regions_[way]);
        client::ForwardCall call;
        call.q = tensors.In(dtype, q_shape, q);
        call.k = tensors.In(dtype, k_shape, k);
        call.v = tensors.In(dtype, v_shape, v);
        call.attention.mask.causal = s.causal;
        call.o = tensors.Out(client::DType::kF32, o_shape, o[way]);
        call.lse = tensors.Out(client::DType::kF32,
                               {s.batch, s.q_heads, s.q_len}, lse[way]);
        Expect(client_->Forward(call, By(way)), way);
        tensors.Fetch();
      }
      for (int way : {1, 2}) {
        EXPECT_EQ(o[way], o[0]) << way << " " << s.q_len << " x " << s.kv_len;
        EXPECT_EQ(lse[way], lse[0]) << way;
      }
    }
  }
}

TEST_F(GpuRegionTest, DeterministicBackwardsHaveTheBitsOfThoseThatTravel) {
  for (const int64_t dim : {64, 128, 256, 40}) {
    for (client::DType dtype : kDTypes) {
      const std::vector<int64_t> shape = {2, 300, 4, dim};
      const Bytes q = RandomBytes(dtype, shape, random_);
      const Bytes k = RandomBytes(dtype, shape, random_);
      const Bytes v = RandomBytes(dtype, shape, random_);
      const Bytes d_o = RandomBytes(dtype, shape, random_);
      const std::vector<int64_t> rows = {2, 4, 300};
      const Bytes delta = RandomBytes(client::DType::kF32, rows, random_);
      Bytes lse(SizeOf(client::DType::kF32, rows));
      const float eight = 8;
      for (size_t i = 0; i < lse.size(); i += 4) {
        std::memcpy(lse.data() + i, &eight, 4);
      }
      Bytes dq[3], dk[3], dv[3];
      for (size_t way = 0; way < regions_.size(); ++way) {
        Tensors tensors(regions_[way]);
        client::BackwardCall call;
        call.q = tensors.In(dtype, shape, q);
        call.k = tensors.In(dtype, shape, k);
        call.v = tensors.In(dtype, shape, v);
        call.d_o = tensors.In(dtype, shape, d_o);
        call.lse = tensors.In(client::DType::kF32, rows, lse);
        call.delta = tensors.In(client::DType::kF32, rows, delta);
        call.deterministic = true;
        call.attention.mask.causal = true;
        call.dq = tensors.Out(dtype, shape, dq[way]);
        call.dk = tensors.Out(dtype, shape, dk[way]);
        call.dv = tensors.Out(dtype, shape, dv[way]);
        Expect(client_->Backward(call, By(way)), way);
        tensors.Fetch();
      }
      for (int way : {1, 2}) {
        EXPECT_EQ(dq[way], dq[0]) << way << " dim " << dim;
        EXPECT_EQ(dk[way], dk[0]) << way << " dim " << dim;
        EXPECT_EQ(dv[way], dv[0]) << way << " dim " << dim;
      }
    }
  }
}

TEST_F(GpuRegionTest, InputsOfEitherKindGoWithResultsOfTheOther) {
  client::CallOptions options;
  options.timeout = kHangLimit;
  const std::vector<int64_t> shape = {1, 1000, 8, 128};
  const client::DType dtype = client::DType::kBF16;
  const Bytes q = RandomBytes(dtype, shape, random_);
  const Bytes k = RandomBytes(dtype, shape, random_);
  const Bytes v = RandomBytes(dtype, shape, random_);
  std::vector<Bytes> results(27);
  for (size_t n = 0; n < results.size(); ++n) {
    Tensors first(regions_[n % 3]), second(regions_[n / 3 % 3]),
        third(regions_[n / 9]);
    client::ForwardCall call;
    call.q = first.In(dtype, shape, q);
    call.k = second.In(dtype, shape, k);
    call.v = second.In(dtype, shape, v);
    call.o = third.Out(dtype, shape, results[n]);
    const auto report = client_->Forward(call, options);
    ASSERT_TRUE(report.ok()) << report.status();
    third.Fetch();
    EXPECT_EQ(results[n], results[0]) << n;
  }
}

}  // namespace
}  // namespace attnd::testing
