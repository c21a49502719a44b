#include "tests/bench/region/calls.h"

#include <cstring>
#include <random>

#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

using client::DType;

constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int64_t ForwardShape::q_bytes() const {
  return q_len * heads * dim * client::SizeOf(dtype);
}

int64_t ForwardShape::kv_bytes() const {
  return kv_len * heads * dim * client::SizeOf(dtype);
}

int64_t ForwardShape::region_bytes() const {
  return 2 * Aligned(q_bytes()) + 2 * Aligned(kv_bytes());
}

std::vector<std::byte> RandomValues(DType dtype, int64_t bytes, uint64_t seed) {
  std::vector<std::byte> values(bytes);
  std::mt19937_64 random(seed);
  // Signs and mantissas are random; exponents say 0.5 to 1 and, of f16, 1/8.
  // A value of 32 bits is as good as two of 16.
  const bool is_f32 = dtype == DType::kF32;
  const uint64_t one = is_f32                  ? 0x3f000000
                       : dtype == DType::kBF16 ? 0x3f003f00
                                               : 0x30003000;
  const uint64_t any = is_f32                  ? 0x807fffff
                       : dtype == DType::kBF16 ? 0x807f807f
                                               : 0x83ff83ff;
  const uint64_t ones = one << 32 | one, mask = any << 32 | any;
  for (int64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = (random() & mask) | ones;
    std::memcpy(values.data() + at, &word, std::min<int64_t>(8, bytes - at));
  }
  return values;
}

client::ForwardCall PlaceForward(client::Region& region,
                                 const ForwardShape& shape) {
  const std::vector<int64_t> q_shape{1, shape.q_len, shape.heads, shape.dim};
  const std::vector<int64_t> kv_shape{1, shape.kv_len, shape.heads, shape.dim};
  const auto place = [&](const std::vector<int64_t>& of) {
    return Get(region.Allocate(shape.dtype, of));
  };
  const auto input = [](const client::Tensor& tensor) {
    return client::ConstTensor{tensor.dtype, tensor.shape, tensor.data};
  };
  client::ForwardCall call;
  call.q = input(place(q_shape));
  call.k = input(place(kv_shape));
  call.v = input(place(kv_shape));
  call.o = place(q_shape);
  return call;
}

client::ForwardCall PlaceRandomForward(client::Region& region,
                                       const ForwardShape& shape,
                                       uint64_t seed) {
  client::ForwardCall call = PlaceForward(region, shape);
  for (const client::ConstTensor* tensor : {&call.q, &call.k, &call.v}) {
    const int64_t bytes =
        tensor == &call.q ? shape.q_bytes() : shape.kv_bytes();
    // The region is the caller's to write.
    std::memcpy(const_cast<void*>(tensor->data),
                RandomValues(shape.dtype, bytes, ++seed).data(), bytes);
  }
  return call;
}

client::Report CallByRegion(client::Client& client,
                            const client::ForwardCall& call) {
  client::CallOptions options;
  options.transport = client::TransportKind::kRegion;
  return Get(client.Forward(call, options));
}

std::unique_ptr<client::Client> NewClient(const std::string& target,
                                          absl::Duration busy_poll) {
  client::ClientOptions options;
  options.busy_poll = busy_poll;
  return Get(client::Client::Create(target, options));
}

}  // namespace attnd::bench
