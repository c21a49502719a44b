#ifndef ATTND_SERVER_REGION_LEASE_LIMITS_H_
#define ATTND_SERVER_REGION_LEASE_LIMITS_H_

// How many regions there may be, and how large: in all, and of one user.
// Decides from what it is told, without sockets or threads; time comes from
// outside.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/region/options.h"
#include "server/region/region_stats.h"
#include "server/work/account.h"

namespace attnd::server {

enum class RegionKind : uint8_t { kHost, kDevice };
inline constexpr int kRegionKinds = 2;

struct HeldRegions {
  int64_t count = 0;
  int64_t bytes = 0;
};

// Thread-safe.
class LeaseLimits : public std::enable_shared_from_this<LeaseLimits> {
 public:
  // A region that counts until this goes, which is when its memory is back.
  class Held {
   public:
    Held(std::shared_ptr<LeaseLimits> limits, RegionKind kind, uid_t user,
         std::shared_ptr<Charge> charge);
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    const std::shared_ptr<LeaseLimits> limits_;
    const RegionKind kind_;
    const uid_t user_;
    const std::shared_ptr<Charge> charge_;
  };

  // `host_bytes` and `device_bytes`: of all regions of each kind.
  static std::shared_ptr<LeaseLimits> Create(const RegionOptions& options,
                                             int64_t host_bytes,
                                             int64_t device_bytes);

  // Counts a region of `user`, or says why it may not be. `now` is
  // MonotonicNow(). A device's counts against the user's rate whatever comes of
  // it.
  std::variant<std::shared_ptr<Held>, RegionRefusal> TryHold(RegionKind kind,
                                                             uid_t user,
                                                             int64_t bytes,
                                                             absl::Time now);

  // Of all regions of this kind.
  int64_t limit_bytes(RegionKind kind) const;
  HeldRegions held(RegionKind kind) const;

 private:
  struct User {
    std::array<HeldRegions, kRegionKinds> held;
    // Imports that may still begin, as of `at`.
    double imports = 0;
    absl::Time at = absl::InfinitePast();
  };

  LeaseLimits(const RegionOptions& options, int64_t host_bytes,
              int64_t device_bytes);
  bool TakeImport(User& user, absl::Time now) const;
  void ForgetIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(RegionKind kind, uid_t user, int64_t bytes);

  const RegionOptions options_;
  const std::array<std::shared_ptr<Account>, kRegionKinds> accounts_;
  mutable Mutex mutex_;
  std::array<int64_t, kRegionKinds> counts_ ABSL_GUARDED_BY(mutex_) = {};
  // Those that hold a region, or have imported one within a second.
  absl::flat_hash_map<uid_t, User> users_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_LEASE_LIMITS_H_
