#ifndef ATTND_KERNELS_CUDA_LAUNCH_PACK_H_
#define ATTND_KERNELS_CUDA_LAUNCH_PACK_H_

// Puts problems into the block that kernels read (see descriptor.h).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/gradient.h"

namespace attnd::cuda {

// The block while it is made, in host memory. Append copies what it is given to
// the end and returns its offset, which is never 0. For one thread at a time.
class Blob {
 public:
  Blob() : bytes_(kAlignment) {}

  // Allocates memory for this many more bytes, so that Append need not.
  void Reserve(size_t bytes) { bytes_.reserve(kAlignment + bytes); }

  // Aligned as a T must be; 0 when there are no values.
  template <class T>
  BlobOffset Append(absl::Span<const T> values) {
    if (values.empty()) return 0;
    const size_t at = RoundUp(bytes_.size(), alignof(T));
    const size_t size = values.size() * sizeof(T);
    bytes_.resize(RoundUp(at + size, kAlignment));
    std::memcpy(bytes_.data() + at, values.data(), size);
    return static_cast<BlobOffset>(at);
  }

  // A DeviceProblem, with its segments and arrays.
  BlobOffset Append(const ForwardArgs& args);
  // DeviceGradients: `gradients`, completed with the tensors of `args`. A
  // backward problem has a DeviceProblem too, that of a ForwardArgs without
  // outputs.
  BlobOffset Append(const BackwardArgs& args, DeviceGradients gradients);
  // The DeviceProblem at `offset`.
  DeviceProblem problem(BlobOffset offset) const;

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 16;
  static size_t RoundUp(size_t size, size_t to) {
    return (size + to - 1) / to * to;
  }

  std::vector<std::byte> bytes_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_PACK_H_
