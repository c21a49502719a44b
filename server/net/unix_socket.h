#ifndef ATTND_SERVER_NET_UNIX_SOCKET_H_
#define ATTND_SERVER_NET_UNIX_SOCKET_H_

// The file of a unix socket that a server listens on: whose it is, who may
// connect, and its end.

#include <sys/socket.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/descriptor.h"
#include "base/mutex.h"

namespace attnd::server {

// Thread-safe.
class UnixSocketFile {
 public:
  // Takes `path` for this process: "PATH.lock" stays locked until Remove, so
  // that of two servers that start at once one is refused. A socket that nobody
  // listens on any more is removed. UNAVAILABLE, naming --unix_socket, and the
  // file is left alone: somebody listens there or is about to, it is no
  // socket, or its folder cannot be written. Or naming `flag`, where it is that
  // which says the path.
  static absl::StatusOr<std::unique_ptr<UnixSocketFile>> Claim(
      const std::string& path, const std::string& flag = "--unix_socket");
  // Removes.
  ~UnixSocketFile() { Remove(); }

  // Binds a socket that does not block to the path and listens. It never has
  // other permissions than `mode`. The process' umask is another one meanwhile:
  // files that other threads create then may get fewer permissions, never more.
  // `type`: SOCK_STREAM or SOCK_SEQPACKET. `group`: whose the file is from the
  // time on that the group may connect. UNAVAILABLE as Claim, and where this
  // process may not give it to that group. Once.
  absl::StatusOr<Descriptor> Listen(mode_t mode, int type = SOCK_STREAM,
                                    std::optional<gid_t> group = std::nullopt);

  // Removes the socket, unless the file is another one by now, and the lock.
  void Remove();

 private:
  UnixSocketFile(const std::string& path, const std::string& flag)
      : path_(path), flag_(flag) {}
  absl::Status Refused(absl::string_view why) const;
  absl::Status Lock();
  absl::Status RemoveStale() const;
  absl::Status GiveTo(gid_t group, mode_t mode) const;

  const std::string path_;
  const std::string flag_;
  Mutex mutex_;
  Descriptor lock_ ABSL_GUARDED_BY(mutex_);
  // Of the socket that Listen left; no inode: none.
  dev_t device_ ABSL_GUARDED_BY(mutex_) = 0;
  ino_t inode_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_UNIX_SOCKET_H_
