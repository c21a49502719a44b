#ifndef ATTND_BASE_SMALL_FILE_H_
#define ATTND_BASE_SMALL_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace attnd {

// What certificates, keys and tokens may have.
inline constexpr int kSmallFileBytes = 1 << 20;

// All of a regular file. INVALID_ARGUMENT, with the path and what the system
// says, or why it is not such a file. A FIFO, whose other end could let the
// caller wait, is none.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

}  // namespace attnd

#endif  // ATTND_BASE_SMALL_FILE_H_
