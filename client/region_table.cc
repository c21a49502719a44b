#include "client/region_table.h"

#include <iterator>
#include <utility>

namespace attnd::client {
namespace {

uintptr_t Address(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

uintptr_t EndOf(uintptr_t begin, const RegionMap::Entry& entry) {
  return begin + static_cast<uintptr_t>(entry.region->bytes());
}

}  // namespace

const RegionMap::Entry* RegionMap::Find(const void* data) const {
  auto found = entries_.upper_bound(Address(data));
  if (found == entries_.begin()) return nullptr;
  --found;
  return Address(data) < EndOf(found->first, found->second) ? &found->second
                                                            : nullptr;
}

const RegionMap::Entry* RegionMap::FindDevice(const void* data,
                                              int64_t bytes) const {
  const uintptr_t end = Address(data) + static_cast<uintptr_t>(bytes);
  for (auto next = entries_.lower_bound(end); next != entries_.begin();) {
    --next;
    if (EndOf(next->first, next->second) <= Address(data)) return nullptr;
    if (next->second.region->on_device()) return &next->second;
  }
  return nullptr;
}

void RegionTable::Add(std::shared_ptr<Region> region) {
  // Should it have the last reference to a region that lay there, that takes a
  // while.
  std::shared_ptr<const RegionMap> before;
  MutexLock lock(mutex_);
  auto map = map_ == nullptr ? std::make_shared<RegionMap>()
                             : std::make_shared<RegionMap>(*map_);
  const uintptr_t begin = Address(region->data());
  map->entries_[begin] = {std::move(region), ""};
  before = std::exchange(map_, std::move(map));
}

void RegionTable::Remove(const std::shared_ptr<Region>& region) {
  std::shared_ptr<const RegionMap> before;  // as above
  MutexLock lock(mutex_);
  if (map_ == nullptr) return;
  const uintptr_t begin = Address(region->data());
  const auto found = map_->entries_.find(begin);
  if (found == map_->entries_.end() || found->second.region != region) return;
  auto map = std::make_shared<RegionMap>(*map_);
  map->entries_.erase(begin);
  before = std::move(map_);
  map_ = map->entries_.empty() ? nullptr : std::move(map);
}

void RegionTable::Refuse(const std::vector<std::shared_ptr<Region>>& regions,
                         const std::string& refusal) {
  if (regions.empty()) return;
  MutexLock lock(mutex_);
  if (map_ == nullptr) return;
  auto map = std::make_shared<RegionMap>(*map_);
  for (const std::shared_ptr<Region>& region : regions) {
    const auto found = map->entries_.find(Address(region->data()));
    if (found == map->entries_.end() || found->second.region != region) {
      continue;
    }
    found->second.refusal = refusal;
  }
  map_ = std::move(map);
}

std::shared_ptr<const RegionMap> RegionTable::Snapshot() const {
  MutexLock lock(mutex_);
  return map_;
}

}  // namespace attnd::client
