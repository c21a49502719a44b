#include "server/region/lent_regions.h"

#include <utility>

namespace attnd::server {
namespace {

class HostRegion : public Region {
 public:
  HostRegion(std::string id, std::unique_ptr<Slab> slab,
             std::shared_ptr<SlabPool> pool, Keeper::Task after)
      : Region(std::move(id), slab->memory()),
        slab_(std::move(slab)),
        pool_(std::move(pool)),
        after_(std::move(after)) {}
  ~HostRegion() override {
    pool_->GiveBack(std::move(slab_), std::move(after_));
  }

 private:
  std::unique_ptr<Slab> slab_;
  const std::shared_ptr<SlabPool> pool_;
  Keeper::Task after_;
};

class DeviceRegion : public Region {
 public:
  DeviceRegion(std::string id, std::shared_ptr<DeviceBuffer> buffer,
               int64_t bytes, int device)
      : Region(std::move(id), std::move(buffer), bytes, device) {}
};

// A reference to a buffer whose end is the keeper's, whoever lets go of it.
class KeptBuffer {
 public:
  KeptBuffer(std::shared_ptr<DeviceBuffer> buffer,
             std::shared_ptr<Keeper> keeper, Keeper::Task after)
      : buffer_(std::move(buffer)),
        keeper_(std::move(keeper)),
        after_(std::move(after)) {}
  ~KeptBuffer() {
    keeper_->Post(
        [buffer = std::move(buffer_), after = std::move(after_)]() mutable {
          buffer = nullptr;
          after();
        });
  }

  DeviceBuffer* get() const { return buffer_.get(); }

 private:
  std::shared_ptr<DeviceBuffer> buffer_;
  const std::shared_ptr<Keeper> keeper_;
  Keeper::Task after_;
};

}  // namespace

std::shared_ptr<const Region> LendSlab(std::string id,
                                       std::unique_ptr<Slab> slab,
                                       std::shared_ptr<SlabPool> pool,
                                       Keeper::Task after) {
  return std::make_shared<HostRegion>(std::move(id), std::move(slab),
                                      std::move(pool), std::move(after));
}

std::shared_ptr<const Region> LendDeviceMemory(
    std::string id, std::shared_ptr<DeviceBuffer> buffer, int64_t bytes,
    int device, std::shared_ptr<Keeper> keeper, Keeper::Task after) {
  const auto kept = std::make_shared<KeptBuffer>(
      std::move(buffer), std::move(keeper), std::move(after));
  return std::make_shared<DeviceRegion>(
      std::move(id), std::shared_ptr<DeviceBuffer>(kept, kept->get()), bytes,
      device);
}

}  // namespace attnd::server
