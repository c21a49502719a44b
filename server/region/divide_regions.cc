#include "server/region/divide_regions.h"

#include <algorithm>

namespace attnd::server {

std::vector<SlabClass> DivideRegions(int64_t memory, int64_t smallest) {
  std::vector<SlabClass> classes;
  for (const int64_t times : {16, 4, 1}) {
    const int64_t bytes = times * smallest;
    const int64_t count = (times == 1 ? memory : memory / 2) / bytes;
    if (count == 0) continue;
    classes.push_back({bytes, count});
    memory -= count * bytes;
  }
  std::reverse(classes.begin(), classes.end());
  return classes;
}

}  // namespace attnd::server
