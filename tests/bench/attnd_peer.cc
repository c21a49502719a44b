#include "tests/bench/attnd_peer.h"

#include <memory>
#include <utility>
#include <vector>

#include "attnd/client.h"
#include "kernels/cpu/cpu_backend.h"
#include "proto/wire/grpc_process.h"
#include "server/program/frame_reads.h"
#include "server/program/heap.h"
#include "server/server.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/require.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::bench {
namespace {

void Serve(std::unique_ptr<Backend> backend, server::ServerOptions options) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::move(backend));
  // As attnd does.
  options.scheduler.run_here_flops = server::kRunHereFlops;
  server::ReadWholeFrames();
  wire::PrepareForGrpc();
  server::LimitHeap(options.memory_limit_bytes);
  std::unique_ptr<server::Server> server =
      Get(server::Server::Start(options, std::move(backends)));
  ServeUntilParentIsDone(server->port());
}

}  // namespace

void ServeAttndCopying(bool long_links, const std::string& path,
                       const server::RegionOptions& regions) {
  server::ServerOptions options;
  options.long_links = long_links;
  options.unix_socket = path;
  options.regions = regions;
  ServeAttnd(std::move(options));
}

void ServeAttndOnCpu() { Serve(Get(CreateCpuBackend({})), {}); }

void ServeAttnd(server::ServerOptions options) {
  Serve(std::make_unique<server::IdentityBackend>(), std::move(options));
}

EchoCall ConnectAttnd(const std::string& target, int connections,
                      client::TransportKind transport) {
  client::ClientOptions options;
  options.connections = connections;
  return ConnectAttnd(target, options, transport);
}

EchoCall ConnectAttnd(const std::string& target,
                      const client::ClientOptions& options,
                      client::TransportKind transport) {
  std::shared_ptr<client::Client> client =
      Get(client::Client::Create(target, options));
  return [client, transport](const Exchange& exchange) {
    constexpr int64_t kHeads = 8, kDim = 128;
    const std::vector<int64_t> shape{
        1, int64_t(exchange.bytes) / (kHeads * kDim * 4), kHeads, kDim};
    client::ForwardCall call;
    call.q = {client::DType::kF32, shape, exchange.in[0]};
    call.k = {client::DType::kF32, shape, exchange.in[1]};
    call.v = {client::DType::kF32, shape, exchange.in[2]};
    call.o = {client::DType::kF32, shape, exchange.out};
    client::CallOptions how;
    how.transport = transport;
    Get(client->Forward(call, how));
  };
}

}  // namespace attnd::bench
