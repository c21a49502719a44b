#ifndef ATTND_SERVER_REGION_REGION_TABLE_H_
#define ATTND_SERVER_REGION_REGION_TABLE_H_

// Which regions requests may name.

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/work/region.h"

namespace attnd::server {

// 16 bytes that nobody can guess. INTERNAL: the system has none.
absl::StatusOr<std::string> NewRegionId();

// Thread-safe.
class RegionTable : public RegionLookup {
 public:
  void Add(std::shared_ptr<const Region> region);
  // Not found any more. Requests that have found it keep it.
  void Remove(const std::string& id);

  std::shared_ptr<const Region> Find(const std::string& id) const override;

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<const Region>> regions_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_REGION_TABLE_H_
