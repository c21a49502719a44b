#include "base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"

namespace attnd {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  const auto refuse = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  };
  // Opening a FIFO would wait for a writer otherwise.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return refuse(std::strerror(errno));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("is not a regular file");
  std::string text;
  char chunk[16384];
  while (text.size() <= kSmallFileBytes) {
    const ssize_t n = read(file.get(), chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse(std::strerror(errno));
    if (n == 0) break;
    text.append(chunk, n);
  }
  if (text.size() > kSmallFileBytes) {
    return refuse(absl::StrCat("has more than ", kSmallFileBytes, " bytes"));
  }
  return text;
}

}  // namespace attnd
