#ifndef ATTND_CLIENT_REGION_H_
#define ATTND_CLIENT_REGION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "attnd/region.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "client/region_allocator.h"
#include "client/region_socket.h"

namespace attnd::client {

// Memory that a region consists of; given back when it is destroyed.
class RegionMemory {
 public:
  virtual ~RegionMemory() = default;
  virtual void* data() const = 0;
  virtual bool on_device() const { return false; }
};

// A region of whatever memory, leased or not.
class CommonRegion final : public Region {
 public:
  // As `granted` by a server.
  CommonRegion(std::unique_ptr<RegionMemory> memory, GrantedRegion granted)
      : memory_(std::move(memory)),
        bytes_(granted.bytes),
        id_(std::move(granted.id)),
        server_instance_id_(std::move(granted.server_instance_id)),
        socket_(std::move(granted.socket)),
        allocator_(bytes_) {}
  // Of which no server knows, as `why_not` says.
  CommonRegion(std::unique_ptr<RegionMemory> memory, int64_t bytes,
               absl::Status why_not)
      : memory_(std::move(memory)),
        bytes_(bytes),
        why_not_(std::move(why_not)),
        allocator_(bytes_) {}

  void* data() const override { return memory_->data(); }
  int64_t bytes() const override { return bytes_; }
  bool on_device() const override { return memory_->on_device(); }
  absl::Status status() const override;
  const std::string& id() const override { return id_; }
  const std::string& server_instance_id() const override {
    return server_instance_id_;
  }
  absl::StatusOr<Tensor> Allocate(DType dtype,
                                  const std::vector<int64_t>& shape) override;
  void Free(const Tensor& tensor) override;

 private:
  // Goes after the socket: the server has been told before it does.
  const std::unique_ptr<RegionMemory> memory_;
  const int64_t bytes_;
  const std::string id_, server_instance_id_;
  const absl::Status why_not_;
  const Descriptor socket_;
  Mutex mutex_;
  RegionAllocator allocator_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_REGION_H_
