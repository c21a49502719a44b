#ifndef ATTND_TESTS_KERNELS_CUDA_GROUP_IMAGE_H_
#define ATTND_TESTS_KERNELS_CUDA_GROUP_IMAGE_H_

// All memory that a group of problems in host memory views, as one block that
// can be copied to a device and back. Between the tensors, and before the first
// and after the last, the block is NaN: who reads there, or writes anywhere but
// to an output, is found out.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention.h"

namespace attnd::testing {

// Of ForwardArgs or BackwardArgs.
template <class Args>
class GroupImage {
 public:
  // Copies what the group views now: inputs, and what outputs hold before the
  // run. Strides must not be negative. The host's outputs must outlive this.
  explicit GroupImage(absl::Span<const Args> group);

  const std::vector<std::byte>& bytes() const { return bytes_; }

  // The group over a copy of the block that starts at `base`, a multiple of 256
  // bytes. Every tensor is as far from a multiple of 16 bytes as it is in host
  // memory. The result points into this, and is valid until the next call.
  std::vector<Args> Rebind(std::byte* base);

  // Copies the outputs, with what lies between their rows, from the block that
  // a run left behind to the host. INTERNAL when the run has changed anything
  // that is not within an output.
  absl::Status TakeOutputs(const std::vector<std::byte>& after);

 private:
  // What one view reaches.
  struct Slot {
    const void* host = nullptr;
    int64_t at = 0;  // in the block
    int64_t bytes = 0;
    bool is_output = false;
  };

  std::vector<Args> group_;
  std::vector<std::vector<KvSegment>> segments_;  // of the rebound problems
  std::vector<Slot> slots_;
  std::vector<std::byte> bytes_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_GROUP_IMAGE_H_
