#ifndef ATTND_BASE_GUARD_SYSTEM_CALLS_H_
#define ATTND_BASE_GUARD_SYSTEM_CALLS_H_

// The system's functions whose place guard.cc and lingering_close.cc take in
// this program, as whoever takes it calls them.

#include <sys/socket.h>
#include <sys/types.h>

namespace attnd::system_calls {

ssize_t Recvmsg(int fd, msghdr* message, int flags);
ssize_t Sendmsg(int fd, const msghdr* message, int flags);
int Setsockopt(int fd, int level, int name, const void* value, socklen_t size);
int Shutdown(int fd, int how);
int Close(int fd);

}  // namespace attnd::system_calls

#endif  // ATTND_BASE_GUARD_SYSTEM_CALLS_H_
