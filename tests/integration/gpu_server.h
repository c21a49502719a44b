#ifndef ATTND_TESTS_INTEGRATION_GPU_SERVER_H_
#define ATTND_TESTS_INTEGRATION_GPU_SERVER_H_

// Servers on real GPUs, and what tests send them.

#include <cstdint>
#include <memory>
#include <vector>

#include "attn/v1/attention.pb.h"
#include "grpcpp/channel.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "server/program/devices.h"
#include "server/server.h"

namespace attnd::testing {

// With default options but for these, on ports of their own.
std::unique_ptr<server::Server> StartServer(
    std::vector<std::unique_ptr<Backend>> devices,
    server::DeviceOptions::Kind kind, int64_t memory_limit);
std::unique_ptr<server::Server> StartOnFirstGpu(
    int64_t memory_limit = int64_t{4} << 30);
std::shared_ptr<grpc::Channel> ConnectTo(const server::Server& server);

// Of a request that is not packed.
struct Shape {
  int64_t batch, q_len, kv_len, q_heads, kv_heads, head_dim, value_dim;
  bool causal = false;
};
// Of every kernel for a GPU, some of them empty.
inline constexpr Shape kShapes[] = {
    {1, 1, 1, 1, 1, 64, 64},
    {2, 100, 100, 4, 4, 64, 64, true},
    {1, 257, 300, 8, 2, 128, 128},
    {3, 1, 700, 8, 1, 128, 128, true},
    {1, 70, 90, 2, 2, 40, 24},
    {1, 33, 65, 3, 3, 1, 256},
    {1, 300, 200, 2, 1, 192, 128, true},
    {1, 128, 128, 2, 2, 256, 256},
    {1, 5, 0, 2, 2, 64, 64},
    {2, 0, 5, 2, 2, 64, 64},
};
inline constexpr attn::v1::DataType kTypes[] = {
    attn::v1::DATA_TYPE_F32, attn::v1::DATA_TYPE_F16, attn::v1::DATA_TYPE_BF16};

DType ToDType(attn::v1::DataType type);
attn::v1::Tensor RandomTensor(const std::vector<int64_t>& shape,
                              attn::v1::DataType type);
// O is asked for in f32.
attn::v1::ForwardRequest MakeForward(const Shape& shape,
                                     attn::v1::DataType type);

// Takes all that is left of the first GPU's memory, but less than 512 MiB, as
// long as it lives.
class Hog {
 public:
  Hog();
  ~Hog();

 private:
  std::vector<void*> taken_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_GPU_SERVER_H_
