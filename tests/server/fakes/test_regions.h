#ifndef ATTND_TESTS_SERVER_FAKES_TEST_REGIONS_H_
#define ATTND_TESTS_SERVER_FAKES_TEST_REGIONS_H_

// Regions without sockets or leases.

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "server/work/region.h"

namespace attnd::server {

// Of host memory of its own, filled with 0xAA, or of a device's buffer.
class TestRegion : public Region {
 public:
  static std::shared_ptr<TestRegion> OfHost(const std::string& id,
                                            int64_t bytes) {
    auto* memory = static_cast<std::byte*>(
        std::aligned_alloc(kTensorAlignment, (bytes + 255) / 256 * 256));
    std::memset(memory, 0xAA, bytes);
    return std::shared_ptr<TestRegion>(new TestRegion(
        id, HostSpan(memory, static_cast<size_t>(bytes)), memory));
  }
  static std::shared_ptr<TestRegion> OfDevice(
      const std::string& id, std::shared_ptr<DeviceBuffer> buffer,
      int64_t bytes, int device) {
    return std::shared_ptr<TestRegion>(
        new TestRegion(id, std::move(buffer), bytes, device));
  }
  ~TestRegion() override { std::free(memory_); }

 private:
  TestRegion(const std::string& id, HostSpan host, std::byte* memory)
      : Region(id, host), memory_(memory) {}
  TestRegion(const std::string& id, std::shared_ptr<DeviceBuffer> buffer,
             int64_t bytes, int device)
      : Region(id, std::move(buffer), bytes, device) {}

  std::byte* const memory_ = nullptr;
};

class TestRegions : public RegionLookup {
 public:
  void Add(std::shared_ptr<const Region> region) {
    regions_[region->id()] = std::move(region);
  }
  void Remove(const std::string& id) { regions_.erase(id); }

  std::shared_ptr<const Region> Find(const std::string& id) const override {
    const auto found = regions_.find(id);
    return found == regions_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, std::shared_ptr<const Region>> regions_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_TEST_REGIONS_H_
