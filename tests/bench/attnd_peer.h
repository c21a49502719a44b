#ifndef ATTND_TESTS_BENCH_ATTND_PEER_H_
#define ATTND_TESTS_BENCH_ATTND_PEER_H_

// attnd itself in the benchmarks' exchanges: its server library and its
// client library.

#include <string>

#include "tests/bench/echo_peers.h"

namespace attnd::bench {

// Serve on a free loopback port until the parent is done: with a backend that
// only copies, so that O is Q, or with the CPU's. `long_links`: the server's
// option of that name.
void ServeAttndCopying(bool long_links);
void ServeAttndOnCpu();

// A client with a connection of its own, for the server that copies.
EchoCall ConnectAttnd(const std::string& target);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_ATTND_PEER_H_
