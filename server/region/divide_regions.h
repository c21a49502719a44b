#ifndef ATTND_SERVER_REGION_DIVIDE_REGIONS_H_
#define ATTND_SERVER_REGION_DIVIDE_REGIONS_H_

// How --region_memory is cut into slabs.

#include <cstdint>
#include <vector>

namespace attnd::server {

struct SlabClass {
  int64_t bytes = 0;  // of a slab
  int64_t count = 0;  // > 0

  friend bool operator==(const SlabClass&, const SlabClass&) = default;
};

// Slabs of `smallest`, 4 and 16 times that, ascending: as many of the largest
// as half of `memory` allows, then of the middle as many as half of the rest
// does, and the rest in the smallest. Less than one of these is left over.
std::vector<SlabClass> DivideRegions(int64_t memory, int64_t smallest);

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_DIVIDE_REGIONS_H_
