#ifndef ATTND_SERVER_REGION_LESSOR_H_
#define ATTND_SERVER_REGION_LESSOR_H_

// Who gives regions out: what a client asks for against what there is and what
// it may have. No sockets in here.

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attn/v1/region.pb.h"
#include "base/log_line.h"
#include "kernels/backend.h"
#include "server/region/keeper.h"
#include "server/region/lease_limits.h"
#include "server/region/options.h"
#include "server/region/region_stats.h"
#include "server/region/region_table.h"
#include "server/region/slab_pool.h"

namespace attnd::server {

// Thread-safe.
class Lessor {
 public:
  struct Lease {
    std::shared_ptr<const Region> region;  // requests find it
    int descriptor = -1;  // of host memory: lives as long as the region
  };
  // A GPU's memory that may be imported.
  struct Import {
    int device = 0;
    int64_t bytes = 0;
    std::shared_ptr<LeaseLimits::Held> held;
  };

  // With all host memory that there may be, filled and pinned, which takes a
  // while. `devices` outlive it. `log` may be empty. RESOURCE_EXHAUSTED, naming
  // --region_memory: there is not so much, or no thread.
  static absl::StatusOr<std::unique_ptr<Lessor>> Start(
      const RegionOptions& options, std::vector<Backend*> devices,
      WriteLine log);
  // No request refers to a region any more; what was given back is cleared.
  ~Lessor();

  // Each refusal is counted.
  //   INVALID_ARGUMENT    what cannot be, whoever asks
  //   RESOURCE_EXHAUSTED  there is none, or too much for one user, now; carries
  //                       RetryInfo
  //   UNIMPLEMENTED       none of this server's memory, or of its devices'
  //   UNAVAILABLE         it drains
  // Neither pins, nor waits for a device.
  absl::StatusOr<Lease> LeaseHostMemory(uid_t user,
                                        const attn::v1::LeaseHostMemory& asked);
  absl::StatusOr<Import> AdmitImport(uid_t user,
                                     const attn::v1::ImportDeviceMemory& asked);
  // Waits for the device's driver. `fd` stays the caller's. Errors of
  // Backend::Import.
  absl::StatusOr<Lease> ImportDeviceMemory(Import import, int fd);
  // The lease of this region is over.
  void End(const std::string& region) { table_.Remove(region); }

  // Counts what was refused elsewhere, and returns `status`, with RetryInfo if
  // it is one of RESOURCE_EXHAUSTED.
  absl::Status Refuse(RegionRefusal why, absl::Status status);
  // From now on everybody is refused.
  void Drain() { draining_ = true; }

  const RegionLookup& table() const { return table_; }
  const SlabPool& pool() const { return *pool_; }
  RegionStats stats() const;

 private:
  Lessor(const RegionOptions& options, std::vector<Backend*> devices);
  absl::Status RefuseByLimit(RegionRefusal why);
  absl::Status RefuseDraining();
  absl::StatusOr<int> FindDevice(const std::string& uuid) const;

  const RegionOptions options_;
  const std::vector<Backend*> devices_;
  std::shared_ptr<LeaseLimits> limits_;
  std::shared_ptr<Keeper> keeper_;
  std::shared_ptr<SlabPool> pool_;
  RegionTable table_;
  std::atomic<bool> draining_{false};
  std::array<std::atomic<int64_t>, kRegionRefusals> refused_{};
};

// Whether clients may lend memory of one of `devices`.
bool TakesDeviceMemory(const RegionOptions& options,
                       const std::vector<const DeviceInfo*>& devices);

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_LESSOR_H_
