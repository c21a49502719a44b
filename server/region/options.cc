#include "server/region/options.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/region/divide_regions.h"
#include "server/scheduling/option_range.h"

namespace attnd::server {
namespace {

constexpr int64_t kMostMemory = int64_t{1} << 50;
// A huge page: what is smaller goes over a stream as fast.
constexpr int64_t kSlabGrain = int64_t{2} << 20;
constexpr int64_t kMostSlab = int64_t{64} << 30;
// To listen, to be woken by, the lock, those in reserve, and one that a client
// lends for as long as it is imported.
constexpr int64_t kBesideConnections = 16;

}  // namespace

int64_t RegionOptions::Descriptors() const {
  if (!enabled()) return 0;
  int64_t descriptors = kBesideConnections + max_connections;
  for (const SlabClass& of : DivideRegions(memory_bytes, slab_bytes)) {
    descriptors += of.count;
  }
  return descriptors;
}

absl::Status RegionOptions::Validate() const {
  // sockaddr_un holds 108 bytes with the terminating zero.
  if (socket.size() > 107) {
    return BadOption("--region_socket", "must be at most 107 bytes long");
  }
  if (absl::StartsWith(socket, "@")) {
    return BadOption("--region_socket",
                     "an abstract socket, which has no permissions, is not "
                     "supported; a file of that name is ./@...");
  }
  if (socket_mode < 0 || socket_mode > 0777) {
    return BadOption("--region_socket_mode", "must be 0 to 0777");
  }
  absl::Status status =
      InRange("--region_memory", memory_bytes, 0, kMostMemory);
  status.Update(InRange("--region_slab", slab_bytes, kSlabGrain, kMostSlab));
  if (!status.ok()) return status;
  if (slab_bytes % kSlabGrain != 0) {
    return BadOption("--region_slab",
                     absl::StrCat("must be a multiple of ", kSlabGrain));
  }
  if (memory_bytes > 0 && memory_bytes < slab_bytes) {
    return BadOption("--region_memory",
                     absl::StrCat("must be 0 or at least --region_slab, which "
                                  "is ",
                                  slab_bytes));
  }
  if (memory_bytes > 0 && !enabled()) {
    return BadOption("--region_memory",
                     "needs --region_socket, where clients ask for it");
  }
  status.Update(
      InRange("--region_import_memory", import_memory_bytes, 0, kMostMemory));
  status.Update(InRange("--max_region_connections", max_connections, 1,
                        int64_t{1} << 16));
  status.Update(InRange("--max_regions_per_user", max_leases_per_user, 1,
                        int64_t{1} << 16));
  status.Update(InRange("--region_memory_per_user", memory_per_user_bytes, 0,
                        kMostMemory));
  status.Update(InRange("--max_region_imports_per_user", max_imports_per_user,
                        1, int64_t{1} << 16));
  status.Update(
      InRange("--region_imports_per_second", imports_per_second, 1, 1000));
  return status;
}

}  // namespace attnd::server
