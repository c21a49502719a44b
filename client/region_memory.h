#ifndef ATTND_CLIENT_REGION_MEMORY_H_
#define ATTND_CLIENT_REGION_MEMORY_H_

// How the programs' tensors travel, and regions that they lie in.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "attnd/client.h"
#include "attnd/region.h"
#include "client/cuda_driver.h"

namespace attnd::client {

enum class TransportChoice { kAuto, kUnary, kStream, kRegion, kDeviceRegion };

// By their names in flags.
const std::map<std::string, TransportChoice>& TransportChoices();

struct TransportFlags {
  TransportChoice transport = TransportChoice::kAuto;
  std::string region_socket;
  int gpu = 0;

  bool in_region() const {
    return transport == TransportChoice::kRegion ||
           transport == TransportChoice::kDeviceRegion;
  }
  // Of calls; for those in a region kAuto, so that they fall back and say so.
  TransportKind kind() const;
  // INVALID_ARGUMENT, naming the flag that is missing.
  absl::Status Validate() const;
};

// A call's tensors, absent ones too, in an order of their own.
std::vector<ConstTensor*> InputsOf(ForwardCall& call);
std::vector<ConstTensor*> InputsOf(BackwardCall& call);
std::vector<Tensor*> OutputsOf(ForwardCall& call);
std::vector<Tensor*> OutputsOf(BackwardCall& call);

// Bytes of a tensor; 0: it is absent, or none that there could be.
int64_t BytesOf(DType dtype, const std::vector<int64_t>& shape);

// Regions with room for a program's tensors. Thread-safe, but for Take.
class RegionMemory {
 public:
  // For pieces of these sizes, as `flags`, which are in_region, say: leases of
  // at most `most_bytes`, or of one piece. Errors as Region::Lease's and
  // AllocateDeviceRegion's.
  static absl::StatusOr<std::unique_ptr<RegionMemory>> Lease(
      const TransportFlags& flags, absl::Span<const int64_t> pieces,
      int64_t most_bytes, absl::Duration timeout);

  const std::vector<std::shared_ptr<Region>>& regions() const {
    return regions_;
  }
  bool on_device() const { return gpu_ != nullptr; }
  int64_t bytes() const;  // of all regions

  // The next of those pieces, in their order.
  absl::StatusOr<char*> Take(int64_t bytes);
  absl::Status CopyIn(const void* from, int64_t bytes, char* to) const;
  absl::Status CopyOut(const char* from, int64_t bytes, void* to) const;

 private:
  std::shared_ptr<CudaGpu> gpu_;  // null: of host memory
  std::vector<std::shared_ptr<Region>> regions_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_REGION_MEMORY_H_
