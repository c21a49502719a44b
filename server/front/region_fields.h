#ifndef ATTND_SERVER_FRONT_REGION_FIELDS_H_
#define ATTND_SERVER_FRONT_REGION_FIELDS_H_

// Slices of regions, in requests.

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/request.h"
#include "proto/wire/fields.h"
#include "server/work/region.h"
#include "server/work/work.h"

namespace attnd::server {

// Where a request says that a tensor lies, or is to be put.
struct RegionSlice {
  TensorId tensor;
  bool is_output = false;
  const std::string* region = nullptr;  // its id
  int64_t offset = 0;
};
using RegionSlices = absl::InlinedVector<RegionSlice, 6>;

// Those of `message`, which `request` was made from. Their ids are the
// message's.
RegionSlices SlicesOf(wire::Fields message, const Request& request);

// Puts into work.inputs, work.placed and work.devices what `slices`, of
// work.request, say; `regions` may be null: there are none. From here on the
// work keeps the regions it needs. Errors, all with the field's path:
//   NOT_FOUND         no such region
//   INVALID_ARGUMENT  a slice that is not within its region or not aligned, one
//                     of a result that overlaps another, or regions on
//                     different devices
absl::Status PlaceInRegions(const RegionSlices& slices,
                            const RegionLookup* regions, Work& work);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_REGION_FIELDS_H_
