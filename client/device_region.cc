#include "attnd/device_region.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/bad_response.h"
#include "client/cuda_driver.h"
#include "client/region.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

// The caller's.
class LentMemory final : public RegionMemory {
 public:
  explicit LentMemory(void* data) : data_(data) {}
  void* data() const override { return data_; }
  bool on_device() const override { return true; }

 private:
  void* const data_;
};

class AllocatedMemory final : public RegionMemory {
 public:
  explicit AllocatedMemory(std::unique_ptr<CudaMemory> memory)
      : memory_(std::move(memory)) {}
  void* data() const override { return memory_->data(); }
  bool on_device() const override { return true; }

 private:
  const std::unique_ptr<CudaMemory> memory_;
};

absl::StatusOr<std::shared_ptr<Region>> Lend(
    const std::string& socket, const ExportedMemory& exported,
    std::unique_ptr<RegionMemory> memory, absl::Duration timeout) {
  attn::v1::RegionRequest request;
  request.mutable_import()->set_bytes(exported.bytes);
  request.mutable_import()->set_gpu_uuid(exported.gpu_uuid.data(),
                                         exported.gpu_uuid.size());
  absl::StatusOr<GrantedRegion> granted =
      RequestRegion(socket, request, exported.fd, timeout);
  if (!granted.ok()) return granted.status();
  if (granted->bytes != exported.bytes) {
    return BadResponse("bytes", absl::StrCat(granted->bytes, " of the ",
                                             exported.bytes, " lent"));
  }
  granted->memory = Descriptor();  // none is due
  return std::make_shared<CommonRegion>(std::move(memory), *std::move(granted));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Region>> LendDeviceMemory(
    const std::string& socket, const ExportedMemory& memory,
    absl::Duration timeout) {
  if (memory.fd < 0) return wire::FieldError("memory.fd", "is none");
  if (memory.data == nullptr) return wire::FieldError("memory.data", "null");
  if (memory.bytes <= 0) {
    return wire::FieldError("memory.bytes",
                            absl::StrCat(memory.bytes, " is not above 0"));
  }
  return Lend(socket, memory, std::make_unique<LentMemory>(memory.data),
              timeout);
}

absl::StatusOr<std::shared_ptr<Region>> AllocateDeviceRegion(
    const std::string& socket, int64_t bytes, int gpu, absl::Duration timeout) {
  if (bytes <= 0) {
    return wire::FieldError("bytes", absl::StrCat(bytes, " is not above 0"));
  }
  auto opened = CudaGpu::Open(gpu);
  if (!opened.ok()) return opened.status();
  auto memory = CudaMemory::Allocate(*opened, bytes);
  if (!memory.ok()) return memory.status();
  // Closed here once the server has it.
  const absl::StatusOr<Descriptor> descriptor = (*memory)->Export();
  if (!descriptor.ok()) return descriptor.status();
  const ExportedMemory exported = {descriptor->get(), (*memory)->data(),
                                   (*memory)->bytes(), (*opened)->uuid()};
  return Lend(socket, exported,
              std::make_unique<AllocatedMemory>(*std::move(memory)), timeout);
}

}  // namespace attnd::client
