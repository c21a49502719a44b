#include "server/identity/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "server/identity/token_lines.h"

namespace attnd::server {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileStamp StampOf(const struct stat& info) {
  return {.exists = true,
          .device = info.st_dev,
          .inode = info.st_ino,
          .bytes = info.st_size,
          .modified_ns = Nanoseconds(info.st_mtim),
          .changed_ns = Nanoseconds(info.st_ctim)};
}

absl::Status CheckFile(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError("is not a regular file");
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return absl::PermissionDeniedError(
        "anyone may write it; chmod o-w takes that away");
  }
  if (info.st_size > kMostTokenFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has more than ", kMostTokenFileBytes, " bytes"));
  }
  return absl::OkStatus();
}

// What `fd` holds up to its end, one byte more than the most at most.
absl::StatusOr<std::string> ReadAll(int fd) {
  std::string text(kMostTokenFileBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

absl::StatusOr<TokenFile> Read(const std::string& path) {
  // A pipe of that name would otherwise keep it waiting for a writer.
  const Descriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, "cannot be opened");
  }
  if (auto status = CheckFile(info); !status.ok()) return status;
  const FileStamp before = StampOf(info);
  absl::StatusOr<std::string> text = ReadAll(file.get());
  if (!text.ok()) return text.status();
  if (fstat(file.get(), &info) != 0 || StampOf(info) != before ||
      static_cast<int64_t>(text->size()) != before.bytes) {
    return absl::AbortedError("changed while it was read");
  }
  absl::StatusOr<TokenSet> tokens = ParseTokens(*text);
  if (!tokens.ok()) return tokens.status();
  return TokenFile{*std::move(tokens), before};
}

}  // namespace

FileStamp StampOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? StampOf(info) : FileStamp();
}

absl::StatusOr<TokenFile> ReadTokenFile(const std::string& path) {
  absl::StatusOr<TokenFile> file = Read(path);
  if (file.ok()) return file;
  // "PATH:LINE: why", as compilers say it, or "PATH: why".
  const absl::string_view why = file.status().message();
  const bool has_line = !why.empty() && why[0] >= '0' && why[0] <= '9';
  return absl::Status(file.status().code(),
                      absl::StrCat(path, has_line ? ":" : ": ", why));
}

}  // namespace attnd::server
