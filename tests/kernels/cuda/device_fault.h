#ifndef ATTND_TESTS_KERNELS_CUDA_DEVICE_FAULT_H_
#define ATTND_TESTS_KERNELS_CUDA_DEVICE_FAULT_H_

// A real fault of a GPU, and what there is to tell of it from a process that it
// leaves without that GPU.

#include <cstdio>
#include <cstdlib>

#include "kernels/backend.h"

namespace attnd::testing {

// A forward that reads where there is nothing. INTERNAL, and from then on
// everything that this process asks of the device is.
inline absl::Status BreakDevice(Stream& stream) {
  absl::StatusOr<std::byte*> lse = stream.Allocate(64 * 4);
  if (!lse.ok()) return lse.status();
  KvSegment segment;
  segment.k = segment.v = {reinterpret_cast<void*>(kTensorAlignment),
                           DType::kF32, 0, 64, 64};
  segment.len = 64;
  ForwardArgs args;
  args.problem.batch = 1;
  args.problem.q_len = 64;
  args.problem.q_heads = args.problem.kv_heads = 1;
  args.problem.head_dim = args.problem.value_dim = 64;
  args.problem.q = segment.k;
  args.problem.kv = {&segment, 1};
  args.lse = {reinterpret_cast<float*>(*lse), 64, 64};
  absl::Status status = stream.Forward({&args, 1}, {});
  return status.ok() ? stream.Wait().status() : status;
}

// For the child of a death test, whose expectations nobody hears.
inline void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_DEVICE_FAULT_H_
