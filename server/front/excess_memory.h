#ifndef ATTND_SERVER_FRONT_EXCESS_MEMORY_H_
#define ATTND_SERVER_FRONT_EXCESS_MEMORY_H_

#include <cstdint>
#include <functional>

#include "server/config/options.h"

namespace attnd::server {

// How many bytes more the heap has than all requests may take together, below 0
// if it has fewer; null where options.heap_in_use is. Thread-safe. Looks at the
// heap every kBetweenLooks at most: that takes it some tens of microseconds.
std::function<int64_t()> ExcessMemory(const ServerOptions& options);

inline constexpr absl::Duration kBetweenLooks = absl::Milliseconds(2);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_EXCESS_MEMORY_H_
