#ifndef ATTND_CLIENT_REGION_TABLE_H_
#define ATTND_CLIENT_REGION_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "attnd/region.h"
#include "base/mutex.h"

namespace attnd::client {

// A client's regions by where they begin, as they were at one time.
class RegionMap {
 public:
  struct Entry {
    std::shared_ptr<Region> region;
    // Why it is not to be tried: the server has said that it does not know it.
    // Else empty.
    std::string refusal;
  };

  // The region in which the byte at `data` lies; null: in none.
  const Entry* Find(const void* data) const;
  // One of GPU memory in which some of the `bytes` > 0 at `data` lie: nobody
  // may read these here. Null: there is none.
  const Entry* FindDevice(const void* data, int64_t bytes) const;

 private:
  friend class RegionTable;
  std::map<uintptr_t, Entry> entries_;
};

// A client's regions. Each change makes another map, so that a call looks at
// one and the same. Thread-safe.
class RegionTable {
 public:
  void Add(std::shared_ptr<Region> region);
  void Remove(const std::shared_ptr<Region>& region);
  // `regions`, of those that are still there, are not tried again.
  void Refuse(const std::vector<std::shared_ptr<Region>>& regions,
              const std::string& refusal);

  // Null: there are none.
  std::shared_ptr<const RegionMap> Snapshot() const;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const RegionMap> map_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_REGION_TABLE_H_
