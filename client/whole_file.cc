#include "client/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"

namespace attnd::client {
namespace {

absl::Status SystemError(const std::string& path) {
  return absl::ErrnoToStatus(errno, path);
}

absl::Status WriteAll(int fd, const std::string& path,
                      absl::Span<const absl::string_view> pieces) {
  for (absl::string_view left : pieces) {
    while (!left.empty()) {
      const ssize_t n = write(fd, left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError(path);
      left.remove_prefix(n);
    }
  }
  return absl::OkStatus();
}

// Writes to `fd`, which is ours, and closes it: some file systems say only
// then that they are full.
absl::Status WriteAndClose(int fd, const std::string& path,
                           absl::Span<const absl::string_view> pieces) {
  if (fd < 0) return SystemError(path);
  absl::Status status = WriteAll(fd, path, pieces);
  if (close(fd) != 0 && status.ok()) return SystemError(path);
  return status;
}

absl::Status WriteInPlace(const std::string& path,
                          absl::Span<const absl::string_view> pieces) {
  return WriteAndClose(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), path,
      pieces);
}

// What a path names.
struct Place {
  bool exists = false;   // links followed
  bool replace = false;  // by a rename; else it is written in place
  std::string file;      // which to replace, without links
  struct stat info;      // if it exists
};

Place Find(const std::string& path) {
  Place place;
  struct stat link;
  place.exists = stat(path.c_str(), &place.info) == 0;
  if (!place.exists) {
    // A link that leads nowhere: opening it makes what it names.
    place.replace = lstat(path.c_str(), &link) != 0;
    place.file = path;
    return place;
  }
  const std::unique_ptr<char, decltype(&free)> real(
      realpath(path.c_str(), nullptr), &free);
  // What is read-only is not replaced: writing it in place says why.
  place.replace = S_ISREG(place.info.st_mode) && real != nullptr &&
                  access(path.c_str(), W_OK) == 0;
  if (place.replace) place.file = real.get();
  return place;
}

// Opens a new file in the folder of `file`; -1 when it takes none.
int OpenBeside(const std::string& file, std::string& name) {
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  for (int n = 0; n < 100; ++n) {
    name = absl::StrCat(folder, ".attnd.", getpid(), ".", n, ".partial");
    const int fd =
        open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path,
                            absl::Span<const absl::string_view> pieces) {
  if (IsStandardOutput(path)) return WriteAll(STDOUT_FILENO, path, pieces);
  const Place place = Find(path);
  if (!place.replace) return WriteInPlace(path, pieces);
  std::string partial;
  const int fd = OpenBeside(place.file, partial);
  if (fd < 0) {
    return place.exists ? WriteInPlace(path, pieces) : SystemError(path);
  }
  if (place.exists) fchmod(fd, place.info.st_mode & 07777);
  absl::Status status = WriteAndClose(fd, path, pieces);
  if (status.ok() && std::rename(partial.c_str(), place.file.c_str()) != 0) {
    status = SystemError(path);
  }
  if (!status.ok()) unlink(partial.c_str());
  return status;
}

absl::Status CheckWritable(const std::string& path) {
  if (IsStandardOutput(path)) return absl::OkStatus();
  const Place place = Find(path);
  if (place.replace) {
    std::string partial;
    const int fd = OpenBeside(place.file, partial);
    if (fd >= 0) {
      close(fd);
      unlink(partial.c_str());
      return absl::OkStatus();
    }
    if (!place.exists) return SystemError(path);
  }
  if (place.exists && access(path.c_str(), W_OK) != 0) return SystemError(path);
  return absl::OkStatus();
}

bool IsStandardOutput(absl::string_view path) {
  return path == "/dev/stdout" || path == "/dev/fd/1" ||
         path == "/proc/self/fd/1";
}

}  // namespace attnd::client
