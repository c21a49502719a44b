#ifndef ATTND_SERVER_REGION_REGIONS_H_
#define ATTND_SERVER_REGION_REGIONS_H_

// All that a server has to do with regions, from the socket to the memory.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "kernels/backend.h"
#include "server/net/unix_socket.h"
#include "server/region/lease_server.h"
#include "server/region/lessor.h"
#include "server/region/options.h"
#include "server/region/region_stats.h"
#include "server/work/region.h"

namespace attnd::server {

// Thread-safe.
class Regions {
 public:
  struct Parts {
    RegionOptions options;          // valid, and enabled
    std::vector<Backend*> devices;  // as requests number them; they outlive it
    std::string server_instance_id;
    absl::Duration header_time;  // ServerOptions::header_time
    WriteLine log;               // may be empty
  };

  // Takes and pins the memory, which may last some seconds, and leases it once
  // it returns. UNAVAILABLE: the socket cannot be had; INVALID_ARGUMENT: there
  // is no such group; RESOURCE_EXHAUSTED: no memory, descriptor or thread.
  static absl::StatusOr<std::unique_ptr<Regions>> Start(Parts parts);
  // Ends every lease. No request refers to a region any more.
  ~Regions() = default;

  const RegionLookup& table() const { return lessor_->table(); }
  RegionStats stats() const;
  // Nobody gets a region any more; those that are leased stay.
  void Drain() { lessor_->Drain(); }
  // As Server::RemoveUnixSocket.
  void RemoveSocket() { socket_->Remove(); }

 private:
  Regions() = default;

  std::unique_ptr<UnixSocketFile> socket_;
  std::unique_ptr<Lessor> lessor_;
  std::unique_ptr<LeaseServer> server_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_REGIONS_H_
