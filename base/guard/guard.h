#ifndef ATTND_BASE_GUARD_GUARD_H_
#define ATTND_BASE_GUARD_GUARD_H_

// Puts somebody between gRPC and the connections that it is given.
//
// gRPC (1.51) reads and writes a connection by recvmsg and sendmsg on its
// descriptor, and lets nobody look first. A relay in between would copy each
// byte twice more and wake two threads for each message. So guard.cc's recvmsg,
// sendmsg, setsockopt and close take the place of the system's in the whole
// program, as lingering_close.cc's shutdown does. They do what the system's do,
// except for descriptors that have a guard.

#include <memory>

#include "base/guard/socket_guard.h"

namespace attnd {

// From now on, and until it is closed, `fd` is read and written through
// `guard`, whoever does. It is still its owner's to close, once nobody reads or
// writes it any more; `guard` goes with it. False: numbers as high as this have
// none.
bool PutGuard(int fd, std::unique_ptr<SocketGuard> guard);

// The one of a descriptor; null: it has none. For who could read `fd`, too.
SocketGuard* GuardOf(int fd);

// Whether the functions here are the ones that the program's libraries call. A
// program that loads this as a part of a library has the system's instead.
bool GuardsAreAsked();

}  // namespace attnd

#endif  // ATTND_BASE_GUARD_GUARD_H_
