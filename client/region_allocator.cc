#include "client/region_allocator.h"

#include <algorithm>
#include <iterator>

namespace attnd::client {

std::optional<int64_t> RegionAllocator::Allocate(int64_t bytes) {
  for (auto room = free_.begin(); room != free_.end(); ++room) {
    const auto [offset, free_bytes] = *room;
    if (free_bytes < bytes) continue;
    // The end of a region need not be a multiple; it cannot overflow here.
    const int64_t taken =
        std::min(free_bytes, (bytes + kRegionAlignment - 1) / kRegionAlignment *
                                 kRegionAlignment);
    free_.erase(room);
    if (taken < free_bytes) free_[offset + taken] = free_bytes - taken;
    taken_[offset] = taken;
    return offset;
  }
  return std::nullopt;
}

bool RegionAllocator::Free(int64_t offset) {
  const auto taken = taken_.find(offset);
  if (taken == taken_.end()) return false;
  int64_t begin = offset, bytes = taken->second;
  taken_.erase(taken);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  free_[begin] = bytes;
  return true;
}

}  // namespace attnd::client
