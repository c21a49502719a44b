#ifndef ATTND_TESTS_SERVER_FAKES_TEST_REGIONS_H_
#define ATTND_TESTS_SERVER_FAKES_TEST_REGIONS_H_

// Regions without sockets or leases.

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "kernels/backend.h"
#include "server/work/region.h"
#include "server/work/request_bytes.h"
#include "server/work/work.h"

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

// Moves the work's inputs into `region`, one behind the other, and has its
// result written behind them. Returns where that is.
inline int64_t MoveIntoRegion(const std::shared_ptr<const Region>& region,
                              std::byte* memory, Work& work, TensorId output) {
  int64_t offset = 0;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (!work.request->input(id).present) continue;
    std::byte* to = memory + offset;
    for (const ConstHostSpan& piece : std::get<HostPieces>(work.inputs[id])) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    work.inputs[id] = RegionBytes{region, offset};
    offset += AlignedTensorBytes(work.request->input(id).bytes);
  }
  work.placed[output] = {region, offset};
  return offset;
}

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_TEST_REGIONS_H_
