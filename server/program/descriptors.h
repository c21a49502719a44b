#ifndef ATTND_SERVER_PROGRAM_DESCRIPTORS_H_
#define ATTND_SERVER_PROGRAM_DESCRIPTORS_H_

// Whether the process may have as many descriptors as a server needs. Without
// one it refuses connections, so this is found out before it starts.

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/config/options.h"

namespace attnd::server {

// Raises the process' soft limit to the hard one, and returns what it is then.
int64_t RaiseDescriptorLimit();

// How many are open.
int CountDescriptors();

// How many connections a server may have of `limit` descriptors, `open` of
// which are open before it starts: --max_connections, or fewer.
// RESOURCE_EXHAUSTED, saying how many are wanted: not one.
absl::StatusOr<int> ConnectionsWithin(int64_t limit, int64_t open,
                                      const ServerOptions& options);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_DESCRIPTORS_H_
