#ifndef ATTND_SERVER_WORK_REGION_H_
#define ATTND_SERVER_WORK_REGION_H_

// Memory that a client shares with the server, and slices of it that requests
// name.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/request.h"

namespace attnd::server {

// Stays as it is until the last request that refers to it is over, whatever its
// client does meanwhile; what is in it may change at any time. Whoever leased
// it out has charged it. Thread-safe.
class Region {
 public:
  virtual ~Region() = default;

  // 16 random bytes: who knows them may use it.
  const std::string& id() const { return id_; }
  int64_t bytes() const { return bytes_; }
  // Of host memory, which is pinned for every device; empty otherwise.
  HostSpan host() const { return host_; }
  // Of memory on a device; null otherwise.
  const std::shared_ptr<DeviceBuffer>& device() const { return device_; }
  // Bit d: device d can use it.
  uint64_t devices() const { return devices_; }

 protected:
  // Host memory, for every device.
  Region(std::string id, HostSpan host)
      : id_(std::move(id)),
        bytes_(static_cast<int64_t>(host.size())),
        host_(host),
        devices_(~uint64_t{0}) {}
  // Memory on device `device`.
  Region(std::string id, std::shared_ptr<DeviceBuffer> buffer, int64_t bytes,
         int device)
      : id_(std::move(id)),
        bytes_(bytes),
        device_(std::move(buffer)),
        devices_(uint64_t{1} << device) {}

 private:
  const std::string id_;
  const int64_t bytes_;
  const HostSpan host_;
  const std::shared_ptr<DeviceBuffer> device_;
  const uint64_t devices_;
};

// A tensor's place in a region, of which it is a part: `offset` is a multiple
// of kTensorAlignment.
struct RegionBytes {
  std::shared_ptr<const Region> region;  // null: in none
  int64_t offset = 0;
};

// Where a result is, for the response that says so: it may be kept for longer
// than there are regions.
struct ResultPlace {
  TensorId tensor;
  std::string region;  // its id
  int64_t offset = 0;
};

// What a request names regions by. Thread-safe.
class RegionLookup {
 public:
  virtual ~RegionLookup() = default;
  // Null: there is none, or it is over.
  virtual std::shared_ptr<const Region> Find(const std::string& id) const = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_REGION_H_
