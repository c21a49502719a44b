#ifndef ATTND_SERVER_SERVER_H_
#define ATTND_SERVER_SERVER_H_

// The whole server as a library: attnd, tests and benchmarks start it alike.
//
//   auto server = attnd::server::Server::Start(options, std::move(backends));
//   ... (*server)->port() ...
//   (*server)->Drain(options.drain_time);

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "server/config/options.h"
#include "server/scheduling/scheduler.h"

namespace attnd::server {

// Thread-safe.
class Server {
 public:
  // Listens and serves once it returns. `backends`: at least one device.
  // INVALID_ARGUMENT: bad options; UNAVAILABLE: an address cannot be had;
  // RESOURCE_EXHAUSTED: no descriptor or thread to accept connections with;
  // else what a backend said.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options,
      std::vector<std::unique_ptr<Backend>> backends);

  // Drains with no time left. Blocks until the transport has let go of every
  // call, which a stopped peer can delay by the keepalive time.
  ~Server();

  int port() const;          // -1: no TCP
  int metrics_port() const;  // -1: none
  int admin_port() const;    // -1: none
  SchedulerStats stats() const;
  // Requests hold a small part of the memory limit, if any.
  bool IsQuiet() const;
  // Gives back memory that is kept for the next requests: for when it is quiet.
  void ReleaseIdleMemory();
  // One line each: what it runs on, its limits, where it listens.
  std::vector<std::string> Describe() const;

  // Health turns NOT_SERVING, new work is refused with UNAVAILABLE, what was
  // admitted finishes within `drain_time`, and the rest ends with UNAVAILABLE.
  // Returns once the transport has sent it all, or half a second after that:
  // it does not wait for a peer that stopped reading. New calls are refused
  // until the server or the process ends: telling gRPC to shut down would end
  // those on their way with CANCELLED, which clients do not try elsewhere.
  void Drain(absl::Duration drain_time);

  // Removes the files of the unix socket and of the region socket, if there are
  // any, for a process that ends without destroying the server. Nobody can
  // connect to them afterwards.
  void RemoveUnixSocket();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SERVER_H_
