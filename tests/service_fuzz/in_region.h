#ifndef ATTND_TESTS_SERVICE_FUZZ_IN_REGION_H_
#define ATTND_TESTS_SERVICE_FUZZ_IN_REGION_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "attnd/client.h"
#include "attnd/region.h"

namespace attnd::fuzz {

// What copies between memory of the host's and a region.
struct RegionCopies {
  std::function<void(void*to, const void*from, int64_t bytes)> in, out;
};
// Of a region of host memory.
RegionCopies HostCopies();

// A client like `client`, which hands most tensors of a call over in `region`,
// and the rest as ever: which ones, follows from their shapes. Results have
// been NaN there before, and what does not fit, or did not travel by reference,
// is INTERNAL. One call at a time.
std::unique_ptr<client::Client> InRegion(std::unique_ptr<client::Client> client,
                                         std::shared_ptr<client::Region> region,
                                         RegionCopies copies);

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_IN_REGION_H_
