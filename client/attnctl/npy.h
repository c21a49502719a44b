#ifndef ATTND_CLIENT_ATTNCTL_NPY_H_
#define ATTND_CLIENT_ATTNCTL_NPY_H_

// NumPy's .npy files, versions 1 to 3: little-endian, C order, float32,
// float16, int64, and bfloat16.
//
// numpy has no bfloat16: its bits are kept as '<u2' (written here) or as '|V2'
// or '<V2' (what ml_dtypes writes). Those are read as kBits16, and become
// bfloat16 only where the user says so.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnd::client {

enum class NpyType { kF32, kF16, kBits16, kI64 };

int64_t SizeOf(NpyType type);          // bytes of one element
absl::string_view Name(NpyType type);  // "float32", ...

struct NpyArray {
  NpyType type = NpyType::kF32;
  std::vector<int64_t> shape;  // of at least one dimension
  std::vector<char> data;      // product(shape) * SizeOf(type) bytes
};

// NOT_FOUND: no such file. INVALID_ARGUMENT: not a regular file (a FIFO, which
// is not waited for), not a .npy file, truncated or too long, Fortran-ordered,
// big-endian, 0-dimensional, of another type. Otherwise what the system said.
// Nothing is allocated before the file is known to hold it. Every message
// starts with the path.
absl::StatusOr<NpyArray> ReadNpy(const std::string& path);

// Replaces the file, or leaves it as it was; see WriteWholeFile. `data`:
// product(shape) * SizeOf(type) bytes.
absl::Status WriteNpy(const std::string& path, NpyType type,
                      const std::vector<int64_t>& shape, const void* data);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_NPY_H_
