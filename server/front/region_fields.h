#ifndef ATTND_SERVER_FRONT_REGION_FIELDS_H_
#define ATTND_SERVER_FRONT_REGION_FIELDS_H_

// Slices of regions, in requests.

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "proto/wire/fields.h"
#include "server/work/region.h"
#include "server/work/work.h"

namespace attnd::server {

// Puts into work.inputs, work.placed and work.devices what the tensors of
// `message`, a request of work.request's kind, say of regions; `regions` may be
// null: there are none. From here on the work keeps the regions it needs.
// Errors, all with the field's path:
//   NOT_FOUND         no such region
//   INVALID_ARGUMENT  a slice that is not within its region or not aligned, one
//                     of a result that overlaps another, or regions on
//                     different devices
absl::Status PlaceInRegions(wire::Fields message, const RegionLookup* regions,
                            Work& work);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_REGION_FIELDS_H_
