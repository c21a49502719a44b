#ifndef ATTND_SERVER_CONFIG_LOG_STATS_H_
#define ATTND_SERVER_CONFIG_LOG_STATS_H_

#include <array>
#include <cstdint>

namespace attnd::server {

// Who writes lines of the log: the server, its libraries, and calls.
enum class LogSource : uint8_t { kServer, kLibrary, kCall };
inline constexpr int kLogSources = 3;

// Lines that are not in the log, since the start.
struct LeftOutLines {
  int64_t by_owner = 0;   // who has no budget for more
  int64_t by_reader = 0;  // as nobody took them in time
};
using LogStats = std::array<LeftOutLines, kLogSources>;  // by LogSource

}  // namespace attnd::server

#endif  // ATTND_SERVER_CONFIG_LOG_STATS_H_
