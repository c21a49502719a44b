#include "base/guard/system_calls.h"

#include <dlfcn.h>

namespace attnd::system_calls {
namespace {

// What comes after this program's own function of that name: a sanitizer's, or
// the C library's.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

ssize_t Recvmsg(int fd, msghdr* message, int flags) {
  static auto* const next = Next<ssize_t(int, msghdr*, int)>("recvmsg");
  return next(fd, message, flags);
}

ssize_t Sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const next = Next<ssize_t(int, const msghdr*, int)>("sendmsg");
  return next(fd, message, flags);
}

int Setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  static auto* const next =
      Next<int(int, int, int, const void*, socklen_t)>("setsockopt");
  return next(fd, level, name, value, size);
}

int Shutdown(int fd, int how) {
  static auto* const next = Next<int(int, int)>("shutdown");
  return next(fd, how);
}

int Close(int fd) {
  static auto* const next = Next<int(int)>("close");
  return next(fd);
}

}  // namespace attnd::system_calls
