#ifndef ATTND_CLIENT_REGION_ALLOCATOR_H_
#define ATTND_CLIENT_REGION_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace attnd::client {

// Tensors begin at multiples of this in a region: RegionSlice.offset.
inline constexpr int64_t kRegionAlignment = 256;

// Hands out room in a region: the first that fits. Not thread-safe.
class RegionAllocator {
 public:
  // Of `bytes` > 0.
  explicit RegionAllocator(int64_t bytes) { free_[0] = bytes; }

  // An offset, a multiple of kRegionAlignment, from which on `bytes` > 0 are
  // taken; nullopt: there is no such room.
  std::optional<int64_t> Allocate(int64_t bytes);
  // What begins at `offset` is free again; false: nothing that was allocated
  // does.
  bool Free(int64_t offset);

 private:
  // Bytes by their offset. Neighbours that are free are one.
  std::map<int64_t, int64_t> free_, taken_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_REGION_ALLOCATOR_H_
