#ifndef ATTND_TESTS_SERVER_SOCKET_PAIRS_H_
#define ATTND_TESTS_SERVER_SOCKET_PAIRS_H_

// Both ends of a connection, of either kind that a server has.

#include "base/descriptor.h"

namespace attnd::server {

struct SocketPair {
  Descriptor server, client;
};

SocketPair UnixPair();
SocketPair TcpPair();

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_SOCKET_PAIRS_H_
