#ifndef ATTND_SERVER_REGION_REGION_STATS_H_
#define ATTND_SERVER_REGION_REGION_STATS_H_

// What there is to know of regions, for metrics.

#include <array>
#include <cstdint>

namespace attnd::server {

// Why somebody got no region.
enum class RegionRefusal : uint8_t {
  kRequest,        // garbled, late, or what cannot be
  kUser,           // who may have none
  kConnections,    // as many are open as may be
  kDescriptors,    // the process or the system has none left
  kMemory,         // none of that size is free now
  kLimitOfUser,    // the user has as many, or as many bytes, as it may
  kRateOfImports,  // the user has imported too often just now
  kDevice,         // the device could not import it
  kDraining,       // the server is about to end
};
inline constexpr int kRegionRefusals = 9;

struct RegionStats {
  // Whose memory is not back yet.
  int64_t leases = 0;
  int64_t leased_bytes = 0;
  int64_t imports = 0;
  int64_t imported_bytes = 0;
  int64_t free_bytes = 0;     // of host memory, that can be leased now
  int64_t replaced = 0;       // regions of host memory that were made anew
  int64_t pinned_pieces = 0;  // of host memory, ever
  int connections = 0;
  std::array<int64_t, kRegionRefusals> refused{};  // by RegionRefusal
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_REGION_STATS_H_
