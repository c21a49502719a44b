#ifndef ATTND_TESTS_INTEGRATION_SLOW_PEERS_H_
#define ATTND_TESTS_INTEGRATION_SLOW_PEERS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace attnd::testing {

// `count` connections to 127.0.0.1:`port` that ask for metrics, wholly, in part
// or not at all, and never read; open for as long as they are kept.
// UNAVAILABLE: a connection is not taken.
absl::StatusOr<std::vector<Descriptor>> SlowPeers(int count, int port);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_SLOW_PEERS_H_
