#ifndef ATTND_CLIENT_ATTNCTL_NPY_HEADER_H_
#define ATTND_CLIENT_ATTNCTL_NPY_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attnd::client {

// The header of a .npy file: a Python literal such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (1, 67), }
struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// INVALID_ARGUMENT: not exactly these three keys, or not such values.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_NPY_HEADER_H_
