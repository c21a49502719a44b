#ifndef ATTND_TESTS_BENCH_SECURITY_COST_SIDE_H_
#define ATTND_TESTS_BENCH_SECURITY_COST_SIDE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attnd/client.h"
#include "tests/bench/echo_peers.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/security/way.h"
#include "tests/bench/smallest_caller.h"
#include "tests/integration/haproxy.h"
#include "tests/temp_folder.h"

namespace attnd::bench {

// Roles of servers, in processes of their own.
inline constexpr char kAttnd[] = "attnd";
inline constexpr char kEcho[] = "echo";

// One way to serve the same calls, and what they took.
struct Side {
  std::string name;
  std::string role = kAttnd;
  Way way = Way::kClear;  // of the client's connection
  bool has_front = false;
  // Whether the client's TLS is gRPC's own, or as attnctl's.
  bool grpc_tls = false;
  // Of the exchange; unary, as the echo's is.
  client::TransportKind transport = client::TransportKind::kUnary;
  std::string program = kThisProgram;
  std::vector<double> ms = {};  // of exchanges
  std::vector<double> us = {};  // of the smallest calls
  // Of processors during exchanges: by the client, and by the server with what
  // is in front of it.
  double client_s = 0, server_s = 0;
};

// A side that runs, and a client's connections to it. Whatever goes wrong ends
// the program.
class Running {
 public:
  Running(const Side& side, const Credentials& credentials);

  // Adds to `side`, unless it is null, what the call took.
  void Call(const Exchange& exchange, Side* side);
  // The echo is sent as many bytes of tensors, but no header of a request.
  void CallSmall();

 private:
  double ServerCpuSeconds() const;

  const testing::TempFolder folder_;
  std::optional<PeerProcess> server_;
  std::unique_ptr<testing::Haproxy> front_;
  EchoCall exchange_;
  std::optional<SmallestCaller> smallest_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_COST_SIDE_H_
