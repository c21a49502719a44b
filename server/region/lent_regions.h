#ifndef ATTND_SERVER_REGION_LENT_REGIONS_H_
#define ATTND_SERVER_REGION_LENT_REGIONS_H_

// Regions as a client has them. The last reference may go on any thread, a
// lane's too, so what there is to be done then is the keeper's.

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "server/region/keeper.h"
#include "server/region/slab.h"
#include "server/region/slab_pool.h"
#include "server/work/region.h"

namespace attnd::server {

// A slab. `after` runs on the keeper's thread when its memory is free again.
std::shared_ptr<const Region> LendSlab(std::string id,
                                       std::unique_ptr<Slab> slab,
                                       std::shared_ptr<SlabPool> pool,
                                       Keeper::Task after);

// Memory on device `device` that was imported, of `bytes`. It is unmapped on
// the keeper's thread, also where a stream was the last to use it; then `after`
// runs there.
std::shared_ptr<const Region> LendDeviceMemory(
    std::string id, std::shared_ptr<DeviceBuffer> buffer, int64_t bytes,
    int device, std::shared_ptr<Keeper> keeper, Keeper::Task after);

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_LENT_REGIONS_H_
