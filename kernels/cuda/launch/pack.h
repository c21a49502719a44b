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

class Blob {
 public:
  Blob() : bytes_(kAlignment) {}

  // Makes room for as many bytes, that it need not move.
  void Reserve(size_t bytes) { bytes_.reserve(kAlignment + bytes); }

  // Copies `values` to the end of the block, aligned as they must be, and says
  // where they are; 0 when there are none.
  template <class T>
  BlobOffset Append(absl::Span<const T> values) {
    if (values.empty()) return 0;
    const size_t at = RoundUp(bytes_.size(), alignof(T));
    const size_t size = values.size() * sizeof(T);
    bytes_.resize(RoundUp(at + size, kAlignment));
    std::memcpy(bytes_.data() + at, values.data(), size);
    return static_cast<BlobOffset>(at);
  }

  // The problem with its segments and arrays.
  BlobOffset Append(const ForwardArgs& args);
  // What a backward problem has beside its DeviceProblem, which Append of a
  // ForwardArgs without outputs makes.
  BlobOffset Append(const BackwardArgs& args, DeviceGradients gradients);
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
