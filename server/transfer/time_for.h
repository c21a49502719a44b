#ifndef ATTND_SERVER_TRANSFER_TIME_FOR_H_
#define ATTND_SERVER_TRANSFER_TIME_FOR_H_

#include <cstdint>

#include "absl/time/time.h"

namespace attnd::server {

// The slowest that bytes may travel, beside ServerOptions::stall_time.
inline constexpr int64_t kLeastBytesPerSecond = int64_t{8} << 20;

// How long `bytes` may take beside the stall time.
inline absl::Duration TimeFor(int64_t bytes) {
  return absl::Seconds(static_cast<double>(bytes) / kLeastBytesPerSecond);
}

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_TIME_FOR_H_
