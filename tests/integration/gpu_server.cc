#include "tests/integration/gpu_server.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/dtype.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {

namespace pb = ::attn::v1;

std::unique_ptr<server::Server> StartServer(
    std::vector<std::unique_ptr<Backend>> devices,
    server::DeviceOptions::Kind kind, int64_t memory_limit) {
  server::ServerOptions options;
  options.memory_limit_bytes = memory_limit;
  options.metrics_port = 0;
  options.scheduler = server::SchedulerDefaults(kind);
  auto started = server::Server::Start(options, std::move(devices));
  EXPECT_TRUE(started.ok()) << started.status();
  return *std::move(started);
}

std::unique_ptr<server::Server> StartOnFirstGpu(int64_t memory_limit) {
  auto gpus = CreateCudaBackends({});
  EXPECT_TRUE(gpus.ok()) << gpus.status();
  gpus->resize(1);
  return StartServer(*std::move(gpus), server::DeviceOptions::Kind::kCuda,
                     memory_limit);
}

std::shared_ptr<grpc::Channel> ConnectTo(const server::Server& server) {
  return Connect(absl::StrCat("127.0.0.1:", server.port()));
}

DType ToDType(pb::DataType type) {
  return type == pb::DATA_TYPE_F32   ? DType::kF32
         : type == pb::DATA_TYPE_F16 ? DType::kF16
                                     : DType::kBF16;
}

pb::Tensor RandomTensor(const std::vector<int64_t>& shape, pb::DataType type) {
  pb::Tensor tensor = server::RandomTensor(shape);
  const std::string floats = tensor.data();
  const DType dtype = ToDType(type);
  std::string& data = *tensor.mutable_data();
  data.resize(floats.size() / 4 * SizeOf(dtype));
  for (size_t i = 0; i < floats.size() / 4; ++i) {
    float value = 0;
    std::memcpy(&value, floats.data() + 4 * i, 4);
    StoreElement(data.data(), dtype, i, value);
  }
  tensor.set_dtype(type);
  return tensor;
}

pb::ForwardRequest MakeForward(const Shape& s, pb::DataType type) {
  pb::ForwardRequest request;
  *request.mutable_q() =
      RandomTensor({s.batch, s.q_len, s.q_heads, s.head_dim}, type);
  *request.mutable_k() =
      RandomTensor({s.batch, s.kv_len, s.kv_heads, s.head_dim}, type);
  *request.mutable_v() =
      RandomTensor({s.batch, s.kv_len, s.kv_heads, s.value_dim}, type);
  request.mutable_attention()->mutable_mask()->set_causal(s.causal);
  request.mutable_o()->set_dtype(pb::DATA_TYPE_F32);
  return request;
}

Hog::Hog() {
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  for (size_t chunk = size_t{64} << 30; chunk >= size_t{256} << 20;) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, chunk) == cudaSuccess) {
      taken_.push_back(memory);
    } else {
      (void)cudaGetLastError();
      chunk /= 2;
    }
  }
}

Hog::~Hog() {
  for (void* memory : taken_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

}  // namespace attnd::testing
