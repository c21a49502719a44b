#ifndef ATTND_SERVER_REGION_OPTIONS_H_
#define ATTND_SERVER_REGION_OPTIONS_H_

// What a server is told of the memory that it shares with clients on its host.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace attnd::server {

struct RegionOptions {
  // Where clients ask for regions: a path; empty: nowhere.
  std::string socket;
  int socket_mode = 0600;  // who may connect to it
  // Whose it is beside its owner's, a name or a number; empty: as the folder
  // has it.
  std::string group;
  // Users who may have regions; empty: whoever may connect.
  std::vector<uint32_t> users;

  // Host memory for regions, apart from memory_limit_bytes; it is taken and
  // pinned at the start. 0: none.
  int64_t memory_bytes = 0;
  // The smallest regions; others are 4 and 16 times as large. See
  // DivideRegions.
  int64_t slab_bytes = int64_t{64} << 20;
  // Of clients' GPU memory, at once; never more than the GPUs have. 0: none. It
  // costs the server addresses and little else, but memory that a client has
  // freed stays taken while requests use it.
  int64_t import_memory_bytes = int64_t{1} << 50;

  // Of all users: connections, each of which has a region or asks for one.
  int max_connections = 256;
  // Of one user: regions of host memory and their bytes (0: what others leave,
  // see client_shares.h), regions of GPU memory, and how often a second one may
  // be made, as that holds a driver's lock.
  int max_leases_per_user = 64;
  int64_t memory_per_user_bytes = 0;
  int max_imports_per_user = 16;
  int imports_per_second = 10;

  bool enabled() const { return !socket.empty(); }
  // The most descriptors that regions take: connections, slabs, and a few.
  int64_t Descriptors() const;

  // INVALID_ARGUMENT naming the option as its flag is spelled, with the range.
  absl::Status Validate() const;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_OPTIONS_H_
