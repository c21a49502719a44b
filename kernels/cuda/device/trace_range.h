#ifndef ATTND_KERNELS_CUDA_DEVICE_TRACE_RANGE_H_
#define ATTND_KERNELS_CUDA_DEVICE_TRACE_RANGE_H_

// What a thread is enqueueing, for whoever traces this process (`nsys profile
// --trace=cuda,nvtx`): a range of NVTX's domain "attnd". Nsight Systems shows
// it over the thread and, projected, over the copies and kernels on the GPU
// that were enqueued in it.
//
// Without a tool in the process NVTX does nothing, which takes some
// nanoseconds; with a toolkit that has no nvtx3.hpp there are no ranges.

#include <cstdint>

#if __has_include(<nvtx3/nvtx3.hpp>)
#include <nvtx3/nvtx3.hpp>
#define ATTND_NVTX 1
#else
#define ATTND_NVTX 0
#endif

namespace attnd::cuda {

// What ranges are about. NVTX is told each name once.
namespace trace {

struct Domain {
  static constexpr const char* name = "attnd";
};

// Of a stream's groups. Forward and Backward end with a group's first slice.
struct Upload {
  static constexpr const char* message = "upload";  // bytes
};
struct Forward {
  static constexpr const char* message = "forward";  // requests
};
struct Backward {
  static constexpr const char* message = "backward";  // requests
};
struct Slices {
  static constexpr const char* message = "further slices";
};
struct Download {
  static constexpr const char* message = "download";  // bytes
};
struct Wait {
  static constexpr const char* message = "wait";
};

// Of a member's share in what a team runs.
struct TeamUpload {
  static constexpr const char* message = "team upload";  // bytes
};
struct TeamPull {
  static constexpr const char* message = "team pull";  // bytes
};
struct TeamForward {
  static constexpr const char* message = "team forward";  // requests
};
struct TeamBackward {
  static constexpr const char* message = "team backward";  // requests
};
struct TeamSum {
  static constexpr const char* message = "team sum";  // rows
};
struct TeamDot {
  static constexpr const char* message = "team dot";  // rows
};
struct TeamMerge {
  static constexpr const char* message = "team merge";  // rows
};
struct TeamDownload {
  static constexpr const char* message = "team download";  // bytes
};
struct TeamWait {
  static constexpr const char* message = "team wait";
};

}  // namespace trace

// From here to the end of the scope, on this thread. `amount` is shown beside
// the name, in what the step counts.
template <class Step>
class TraceRange {
 public:
#if ATTND_NVTX
  explicit TraceRange(int64_t amount = 0)
      : range_(nvtx3::registered_string_in<trace::Domain>::template get<Step>(),
               nvtx3::payload(amount)) {}

 private:
  nvtx3::scoped_range_in<trace::Domain> range_;
#else
  explicit TraceRange(int64_t = 0) {}
#endif
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_TRACE_RANGE_H_
