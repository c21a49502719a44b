#ifndef ATTND_TESTS_CLIENT_FAKE_REGION_H_
#define ATTND_TESTS_CLIENT_FAKE_REGION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attnd/region.h"

namespace attnd::client {

// A region that no server has granted, with memory behind it that is not part
// of it; of a GPU's memory, if it is told so, which then is not to be touched.
class FakeRegion final : public Region {
 public:
  explicit FakeRegion(int64_t bytes, bool on_device = false,
                      std::string id = "sixteen secret b")
      : memory_((bytes + 255) / 256 + 2),
        bytes_(bytes),
        on_device_(on_device),
        id_(std::move(id)) {}

  void* data() const override { return const_cast<Block*>(memory_.data()); }
  int64_t bytes() const override { return bytes_; }
  bool on_device() const override { return on_device_; }
  absl::Status status() const override { return state; }
  const std::string& id() const override { return id_; }
  const std::string& server_instance_id() const override { return id_; }
  absl::StatusOr<Tensor> Allocate(DType, const std::vector<int64_t>&) override {
    return absl::UnimplementedError("by hand");
  }
  void Free(const Tensor&) override {}

  char* at(int64_t offset) const { return static_cast<char*>(data()) + offset; }

  absl::Status state;

 private:
  struct alignas(256) Block {
    char bytes[256];
  };
  std::vector<Block> memory_;
  const int64_t bytes_;
  const bool on_device_;
  const std::string id_;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_FAKE_REGION_H_
