#ifndef ATTND_CLIENT_REGION_SOCKET_H_
#define ATTND_CLIENT_REGION_SOCKET_H_

// The client's end of a server's region socket: see attn/v1/region.proto.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attn/v1/region.pb.h"
#include "base/descriptor.h"

namespace attnd::client {

// What the server has granted, for as long as `socket` is open.
struct GrantedRegion {
  Descriptor socket;
  std::string id;  // 16 bytes
  int64_t bytes = 0;
  std::string server_instance_id;
  Descriptor memory;  // that came with the reply, if any did
};

// Asks the server that listens at the path `socket` for a region. `descriptor`
// goes along unless it is negative, and stays the caller's. Blocks for
// `timeout` at most. INVALID_ARGUMENT: `socket` cannot be one; UNAVAILABLE:
// nobody listens there, or the server has gone; PERMISSION_DENIED;
// DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED: the process may have no more
// descriptors; INTERNAL, naming the field: the reply is garbled; else the
// server's status.
absl::StatusOr<GrantedRegion> RequestRegion(
    const std::string& socket, const attn::v1::RegionRequest& request,
    int descriptor, absl::Duration timeout);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_REGION_SOCKET_H_
