#ifndef ATTND_TESTS_KERNELS_RUN_GROUP_H_
#define ATTND_TESTS_KERNELS_RUN_GROUP_H_

// A whole group on a stream, without a pause.

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"

namespace attnd::testing {

inline absl::Status RunAll(Stream& stream, absl::Status begun) {
  if (!begun.ok()) return begun;
  return stream.Proceed([] { return false; }).status();
}

inline absl::Status RunForward(Stream& stream,
                               absl::Span<const ForwardArgs> group,
                               const GroupOptions& options = {}) {
  return RunAll(stream, stream.Forward(group, options));
}

inline absl::Status RunBackward(Stream& stream,
                                absl::Span<const BackwardArgs> group,
                                const GroupOptions& options = {}) {
  return RunAll(stream, stream.Backward(group, options));
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_RUN_GROUP_H_
