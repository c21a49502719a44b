#include "client/region.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/bad_response.h"
#include "client/tensor_size.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

class MappedMemory final : public RegionMemory {
 public:
  MappedMemory(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~MappedMemory() override { munmap(data_, bytes_); }

  // Shared, of `fd`; or, if that is negative, of this process' own.
  static absl::StatusOr<std::unique_ptr<MappedMemory>> Map(int fd,
                                                           int64_t bytes) {
    const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* data = mmap(nullptr, static_cast<size_t>(bytes),
                      PROT_READ | PROT_WRITE, flags, fd, 0);
    if (data == MAP_FAILED) {
      const std::string text =
          absl::StrCat("mapping ", bytes, " bytes: ", std::strerror(errno));
      return errno == ENOMEM ? absl::ResourceExhaustedError(text)
                             : absl::InternalError(text);
    }
    return std::make_unique<MappedMemory>(data, static_cast<size_t>(bytes));
  }

  void* data() const override { return data_; }

 private:
  void* const data_;
  const size_t bytes_;
};

// That what is mapped of `fd` stays: else whoever can cut it short has the
// process die of SIGBUS when it touches what is gone.
absl::Status CheckMemory(int fd, int64_t bytes) {
  if (fd < 0) return BadResponse("descriptor", "missing");
  struct stat status = {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return BadResponse("descriptor", "is not one of memory");
  }
  if (status.st_size < bytes) {
    return BadResponse("descriptor",
                       absl::StrCat("of ", status.st_size, " bytes where ",
                                    bytes, " are due"));
  }
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSealed) != kSealed) {
    return BadResponse("descriptor", "its size is not sealed");
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(int64_t bytes) {
  if (bytes > 0) return absl::OkStatus();
  return wire::FieldError("bytes", absl::StrCat(bytes, " is not above 0"));
}

}  // namespace

absl::Status CommonRegion::status() const {
  if (!socket_.valid()) return why_not_;
  pollfd state = {.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  if (poll(&state, 1, 0) <= 0) return absl::OkStatus();
  return absl::UnavailableError("the server has ended the lease");
}

absl::StatusOr<Tensor> CommonRegion::Allocate(
    DType dtype, const std::vector<int64_t>& shape) {
  const absl::StatusOr<int64_t> bytes = TensorBytes("tensor", dtype, shape);
  if (!bytes.ok()) return bytes.status();
  // What is empty takes no room.
  if (*bytes == 0) return Tensor{dtype, shape, data()};
  std::optional<int64_t> offset;
  {
    MutexLock lock(mutex_);
    offset = allocator_.Allocate(*bytes);
  }
  if (!offset.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the region of ", bytes_, " bytes has no room left for ",
                     ShapeText(shape), ", ", *bytes, " bytes"));
  }
  return Tensor{dtype, shape, static_cast<char*>(data()) + *offset};
}

void CommonRegion::Free(const Tensor& tensor) {
  if (TensorBytes("tensor", tensor.dtype, tensor.shape).value_or(0) == 0) {
    return;
  }
  MutexLock lock(mutex_);
  allocator_.Free(static_cast<char*>(tensor.data) - static_cast<char*>(data()));
}

absl::StatusOr<std::shared_ptr<Region>> Region::Lease(const std::string& socket,
                                                      int64_t bytes,
                                                      absl::Duration timeout) {
  if (absl::Status status = CheckBytes(bytes); !status.ok()) return status;
  attn::v1::RegionRequest request;
  request.mutable_lease()->set_bytes(bytes);
  absl::StatusOr<GrantedRegion> granted =
      RequestRegion(socket, request, /*descriptor=*/-1, timeout);
  if (!granted.ok()) return granted.status();
  const int fd = granted->memory.get();
  if (absl::Status status = CheckMemory(fd, granted->bytes); !status.ok()) {
    return status;
  }
  auto memory = MappedMemory::Map(fd, granted->bytes);
  if (!memory.ok()) return memory.status();
  granted->memory = Descriptor();  // the mapping keeps it
  return std::make_shared<CommonRegion>(*std::move(memory),
                                        *std::move(granted));
}

absl::StatusOr<std::shared_ptr<Region>> Region::LeaseOrAllocate(
    const std::string& socket, int64_t bytes, absl::Duration timeout) {
  if (absl::Status status = CheckBytes(bytes); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<Region>> leased =
      Lease(socket, bytes, timeout);
  if (leased.ok()) return leased;
  auto memory = MappedMemory::Map(-1, bytes);
  if (!memory.ok()) {
    return absl::ResourceExhaustedError(memory.status().message());
  }
  return std::make_shared<CommonRegion>(*std::move(memory), bytes,
                                        leased.status());
}

}  // namespace attnd::client
