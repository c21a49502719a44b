#ifndef ATTND_TESTS_BENCH_SECURITY_HELD_STREAMS_H_
#define ATTND_TESTS_BENCH_SECURITY_HELD_STREAMS_H_

// Calls that a client opens and never ends.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/integration/floods.h"
#include "tests/tls_client.h"

namespace attnd::bench {

struct HeldStreams {
  const char* name;
  const char* path;
  std::string message;
  int connections;
  int streams;  // of each
  bool ends;    // the client's half: it has said all there is to say
  // Whether another client gets such a stream, over `unix_socket`.
  absl::Status (*another)(const std::string& unix_socket);
};

// 2,000 watches of health, and 64 streams of reflection.
const std::vector<HeldStreams>& AllHeldStreams();

// Opens them all, from 127.0.0.2; they end with what is returned. Empty: the
// server ended a connection. `tls` null: in clear.
std::vector<std::unique_ptr<testing::FloodingPeer>> Hold(
    const HeldStreams& held, const std::string& address,
    const testing::TlsClientOptions* tls);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_HELD_STREAMS_H_
