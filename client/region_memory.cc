#include "client/region_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attnd/device_region.h"
#include "client/region_allocator.h"
#include "client/tensor_size.h"

namespace attnd::client {
namespace {

// What a piece of a region takes, with what aligns the next.
int64_t Room(int64_t bytes) {
  return (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
}

// Bytes of leases that together have room for `pieces`, in their order.
std::vector<int64_t> LeasesFor(absl::Span<const int64_t> pieces,
                               int64_t most_bytes) {
  std::vector<int64_t> leases;
  for (const int64_t piece : pieces) {
    if (piece == 0) continue;
    if (leases.empty() || Room(piece) > most_bytes - leases.back()) {
      leases.push_back(0);
    }
    leases.back() += Room(piece);
  }
  return leases;
}

}  // namespace

const std::map<std::string, TransportChoice>& TransportChoices() {
  static const auto& names = *new std::map<std::string, TransportChoice>{
      {"auto", TransportChoice::kAuto},
      {"unary", TransportChoice::kUnary},
      {"stream", TransportChoice::kStream},
      {"region", TransportChoice::kRegion},
      {"device_region", TransportChoice::kDeviceRegion}};
  return names;
}

TransportKind TransportFlags::kind() const {
  switch (transport) {
    case TransportChoice::kUnary:
      return TransportKind::kUnary;
    case TransportChoice::kStream:
      return TransportKind::kStream;
    case TransportChoice::kAuto:
    case TransportChoice::kRegion:
    case TransportChoice::kDeviceRegion:
      return TransportKind::kAuto;
  }
  return TransportKind::kAuto;
}

absl::Status TransportFlags::Validate() const {
  if (!in_region() || !region_socket.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--region_socket: a region needs the path of the server's region socket "
      "(attnd --region_socket)");
}

std::vector<ConstTensor*> InputsOf(ForwardCall& call) {
  return {&call.q, &call.k, &call.v, &call.bias};
}
std::vector<ConstTensor*> InputsOf(BackwardCall& call) {
  return {&call.q,   &call.k, &call.v,     &call.bias, &call.d_o,
          &call.lse, &call.o, &call.delta, &call.d_lse};
}
std::vector<Tensor*> OutputsOf(ForwardCall& call) {
  return {&call.o, &call.lse};
}
std::vector<Tensor*> OutputsOf(BackwardCall& call) {
  return {&call.dq, &call.dk, &call.dv};
}

int64_t BytesOf(DType dtype, const std::vector<int64_t>& shape) {
  if (shape.empty()) return 0;
  return TensorBytes("", dtype, shape).value_or(0);
}

absl::StatusOr<std::unique_ptr<RegionMemory>> RegionMemory::Lease(
    const TransportFlags& flags, absl::Span<const int64_t> pieces,
    int64_t most_bytes, absl::Duration timeout) {
  auto memory = std::make_unique<RegionMemory>();
  const bool on_device = flags.transport == TransportChoice::kDeviceRegion;
  if (on_device) {
    auto gpu = CudaGpu::Open(flags.gpu);
    if (!gpu.ok()) return gpu.status();
    memory->gpu_ = *std::move(gpu);
  }
  for (const int64_t bytes : LeasesFor(pieces, most_bytes)) {
    auto region = on_device
                      ? AllocateDeviceRegion(flags.region_socket, bytes,
                                             flags.gpu, timeout)
                      : Region::Lease(flags.region_socket, bytes, timeout);
    if (!region.ok()) return region.status();
    memory->regions_.push_back(*std::move(region));
  }
  return memory;
}

int64_t RegionMemory::bytes() const {
  int64_t bytes = 0;
  for (const auto& region : regions_) bytes += region->bytes();
  return bytes;
}

absl::StatusOr<char*> RegionMemory::Take(int64_t bytes) {
  if (bytes == 0) return nullptr;
  // A piece may come to lie in an earlier lease than was reckoned, never in a
  // later one.
  for (const auto& region : regions_) {
    const absl::StatusOr<Tensor> tensor =
        region->Allocate(DType::kF16, {Room(bytes) / SizeOf(DType::kF16)});
    if (tensor.ok()) return static_cast<char*>(tensor->data);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no region has room for ", bytes, " bytes"));
}

absl::Status RegionMemory::CopyIn(const void* from, int64_t bytes,
                                  char* to) const {
  if (gpu_ != nullptr) return gpu_->CopyToDevice(from, bytes, to);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status RegionMemory::CopyOut(const char* from, int64_t bytes,
                                   void* to) const {
  if (gpu_ != nullptr) return gpu_->CopyToHost(from, bytes, to);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

}  // namespace attnd::client
