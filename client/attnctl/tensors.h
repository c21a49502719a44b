#ifndef ATTND_CLIENT_ATTNCTL_TENSORS_H_
#define ATTND_CLIENT_ATTNCTL_TENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnd/client.h"

namespace attnd::client {

// A tensor and its memory.
struct HostTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<char> data;

  ConstTensor view() const { return {dtype, shape, data.data()}; }
  Tensor mutable_view() { return {dtype, shape, data.data()}; }
  double at(size_t index) const;  // any dtype, by flat index
  size_t elements() const { return data.size() / SizeOf(dtype); }
};

// Filled with NaN, so that what the server leaves out shows.
HostTensor PoisonedTensor(DType dtype, const std::vector<int64_t>& shape);

// A .npy file as `dtype`, rounded or widened to it; unset: as the file has it.
// 16 bits of no known type are bfloat16 when that is the type asked for, and
// otherwise INVALID_ARGUMENT. Errors as ReadNpy's.
absl::StatusOr<HostTensor> LoadTensor(const std::string& path,
                                      std::optional<DType> dtype);
// As LoadTensor, except that a float32 file stays float32.
absl::StatusOr<HostTensor> LoadTensorOrF32(const std::string& path,
                                           DType dtype);
absl::Status SaveTensor(const std::string& path, const HostTensor& tensor);

// "1,2,3", or the path of an int64 .npy file.
absl::StatusOr<std::vector<int64_t>> LoadIntegers(const std::string& flag,
                                                  const std::string& value);

// How far `actual` is from `expected`. Equal infinities agree; a NaN, or an
// infinity on one side only, makes both differences infinite.
struct Difference {
  double max = 0;          // largest absolute difference
  double rms = 0;          // root mean square of differences
  double scale = 0;        // the largest finite expected magnitude
  size_t worst_index = 0;  // of `max`, flat

  // The largest difference as a share of the largest expected value.
  double relative() const { return scale > 0 ? max / scale : max; }
};
// INVALID_ARGUMENT when the shapes differ.
absl::StatusOr<Difference> Compare(const HostTensor& actual,
                                   const HostTensor& expected);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_TENSORS_H_
