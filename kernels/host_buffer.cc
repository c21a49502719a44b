#include "kernels/host_buffer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnd {
namespace {

class HostBuffer final : public DeviceBuffer {
 public:
  // Owns `data`, `bytes` of `memory`.
  HostBuffer(std::shared_ptr<HostMemory> memory, std::byte* data, int64_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}
  ~HostBuffer() override { memory_->Free(data_, bytes_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  std::byte* data() const override { return data_; }

  absl::Status Write(int64_t offset,
                     absl::Span<const ConstHostSpan> from) override {
    std::byte* to = data_ + offset;
    for (const ConstHostSpan& span : from) {
      if (span.empty()) continue;
      std::memcpy(to, span.data(), span.size());
      to += span.size();
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<HostMemory> memory_;
  std::byte* const data_;
  const int64_t bytes_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewHostBuffer(
    std::shared_ptr<HostMemory> memory, int64_t bytes) {
  // HostMemory gives out nothing smaller.
  const int64_t held = std::max<int64_t>(1, bytes);
  std::byte* data = memory->Allocate(held);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", bytes, " bytes"));
  }
  return std::make_shared<HostBuffer>(std::move(memory), data, held);
}

}  // namespace attnd
