#ifndef ATTND_TESTS_BENCH_RAW_SOCKET_H_
#define ATTND_TESTS_BENCH_RAW_SOCKET_H_

// The floor of a transport: the same exchange over plain sockets, one thread at
// each end of each, without any protocol, and with the copies that nobody can
// leave out. What arrives is read into a chunk's buffer and copied from there
// to where it belongs; the server copies the first tensor to an output once all
// have come, and sends that.

#include <string>

#include "tests/bench/echo_peers.h"

namespace attnd::bench {

// Serves exchanges of `bytes` a tensor until the parent is done: on a free
// loopback port, or on the unix socket `path` if that is not empty.
void ServeRawSockets(size_t bytes, const std::string& path);

// A client with `connections` sockets, each of which carries its share of every
// tensor, to a port or, where `target` begins with "unix:", to a path.
EchoCall ConnectRawSockets(const std::string& target, int connections,
                           size_t bytes);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_RAW_SOCKET_H_
