#ifndef ATTND_TESTS_BENCH_ATTND_PEER_H_
#define ATTND_TESTS_BENCH_ATTND_PEER_H_

// attnd itself in the benchmarks' exchanges: its server library and its
// client library.

#include <string>

#include "attnd/client.h"
#include "server/config/options.h"
#include "server/region/options.h"
#include "tests/bench/echo_peers.h"

namespace attnd::bench {

// Serve on a free loopback port, and on the unix socket `path` if that is not
// empty, until the parent is done: with a backend that only copies, so that O
// is Q, or with the CPU's. `long_links` and `regions`: the server's options of
// these names.
void ServeAttndCopying(bool long_links, const std::string& path = "",
                       const server::RegionOptions& regions = {});
void ServeAttndOnCpu();
// With the backend that copies, and whatever else an attnd may be told.
void ServeAttnd(server::ServerOptions options);

// A client with connections of its own, for the server that copies, which takes
// the way `transport`.
EchoCall ConnectAttnd(
    const std::string& target, int connections = 1,
    client::TransportKind transport = client::TransportKind::kUnary);
EchoCall ConnectAttnd(const std::string& target,
                      const client::ClientOptions& options,
                      client::TransportKind transport);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_ATTND_PEER_H_
