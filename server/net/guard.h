#ifndef ATTND_SERVER_NET_GUARD_H_
#define ATTND_SERVER_NET_GUARD_H_

// Puts somebody between gRPC and the connections that it is given.
//
// gRPC (1.51) reads and writes a connection by recvmsg and sendmsg on its
// descriptor, and lets nobody look first. A relay in between would copy each
// byte twice more and wake two threads for each message. So guard.cc's recvmsg,
// sendmsg, setsockopt and close take the place of the system's in the whole
// program, as lingering_close.cc's shutdown does. They do what the system's do,
// except for descriptors that have a guard.

#include <memory>

#include "server/net/guarded_connection.h"

namespace attnd::server {

// From now on, and until it is closed, `fd` is read and written through
// `guard`, whoever does. It is still its owner's to close, once nobody reads or
// writes it any more; `guard` goes with it. False: numbers as high as this have
// none.
bool PutGuard(int fd, std::unique_ptr<GuardedConnection> guard);

// The one of a descriptor; null: it has none. For who could read `fd`, too.
GuardedConnection* GuardOf(int fd);

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_GUARD_H_
