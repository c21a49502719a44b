#include "server/net/unix_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

std::string LockPath(const std::string& path) { return path + ".lock"; }

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

sockaddr_un SocketAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

Descriptor NewSocket(int type) {
  return Descriptor(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// What connecting to `path` ends with: an errno, or 0.
int ConnectError(const std::string& path) {
  sockaddr_un address = SocketAddress(path);
  const Descriptor fd = NewSocket(SOCK_STREAM);
  if (!fd.valid()) return errno;
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                 sizeof(address)) == 0
             ? 0
             : errno;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixSocketFile>> UnixSocketFile::Claim(
    const std::string& path, const std::string& flag) {
  std::unique_ptr<UnixSocketFile> file(new UnixSocketFile(path, flag));
  absl::Status status = file->Lock();
  if (status.ok()) status = file->RemoveStale();
  if (!status.ok()) return status;
  return file;
}

absl::Status UnixSocketFile::Refused(absl::string_view why) const {
  return absl::UnavailableError(
      absl::StrCat(flag_, ": cannot listen on ", path_, ": ", why));
}

absl::Status UnixSocketFile::Lock() {
  const std::string path = LockPath(path_);
  while (true) {
    Descriptor fd(
        open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) {
      return Refused(absl::StrCat(path, ": ", std::strerror(errno)));
    }
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      return Refused(absl::StrCat("another server has locked ", path));
    }
    // Whoever had it may have removed it since it was opened.
    struct stat locked = {}, there = {};
    if (fstat(fd.get(), &locked) == 0 && lstat(path.c_str(), &there) == 0 &&
        SameFile(locked, there)) {
      MutexLock lock(mutex_);
      lock_ = std::move(fd);
      return absl::OkStatus();
    }
  }
}

absl::Status UnixSocketFile::RemoveStale() const {
  struct stat there = {};
  if (lstat(path_.c_str(), &there) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Refused(std::strerror(errno));
  }
  if (!S_ISSOCK(there.st_mode)) return Refused("it is not a socket");
  const int error = ConnectError(path_);
  // A socket of another type lives as well.
  if (error == 0 || error == EAGAIN || error == EPROTOTYPE) {
    return Refused("somebody else listens there");
  }
  if (error != ECONNREFUSED) return Refused(std::strerror(error));
  if (unlink(path_.c_str()) != 0) return Refused(std::strerror(errno));
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> UnixSocketFile::Listen(mode_t mode, int type,
                                                  std::optional<gid_t> group) {
  sockaddr_un address = SocketAddress(path_);
  Descriptor fd = NewSocket(type);
  if (!fd.valid()) return Refused(std::strerror(errno));
  // Nobody but its owner until it is the group's.
  const mode_t first_mode = group.has_value() ? mode & 0700 : mode;
  const mode_t before = umask(~first_mode & 0777);
  const bool is_bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
                             sizeof(address)) == 0;
  const int error = errno;
  umask(before);
  if (!is_bound) return Refused(std::strerror(error));
  struct stat bound = {};
  if (lstat(path_.c_str(), &bound) == 0 && S_ISSOCK(bound.st_mode)) {
    MutexLock lock(mutex_);
    device_ = bound.st_dev;
    inode_ = bound.st_ino;
  }
  if (group.has_value()) {
    const absl::Status given = GiveTo(*group, mode);
    if (!given.ok()) return given;
  }
  if (listen(fd.get(), SOMAXCONN) != 0) {
    return Refused(std::strerror(errno));
  }
  return fd;
}

// By a descriptor, so that both are done to the same file.
absl::Status UnixSocketFile::GiveTo(gid_t group, mode_t mode) const {
  const Descriptor file(open(path_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat there = {};
  if (!file.valid() || fstat(file.get(), &there) != 0) {
    return Refused(std::strerror(errno));
  }
  if (!S_ISSOCK(there.st_mode)) return Refused("it is not a socket");
  if (fchownat(file.get(), "", -1, group, AT_EMPTY_PATH) != 0) {
    return Refused(absl::StrCat("it cannot be given to group ", group, ": ",
                                std::strerror(errno)));
  }
  // fchmod knows no descriptors of this kind.
  const std::string name = absl::StrCat("/proc/self/fd/", file.get());
  if (chmod(name.c_str(), mode) != 0) return Refused(std::strerror(errno));
  return absl::OkStatus();
}

void UnixSocketFile::Remove() {
  MutexLock lock(mutex_);
  if (!lock_.valid()) return;
  struct stat there = {};
  if (inode_ != 0 && lstat(path_.c_str(), &there) == 0 &&
      there.st_dev == device_ && there.st_ino == inode_) {
    unlink(path_.c_str());
  }
  unlink(LockPath(path_).c_str());
  lock_ = Descriptor();
}

}  // namespace attnd::server
