#ifndef ATTND_KERNELS_CUDA_TEAM_QUEUE_STREAM_H_
#define ATTND_KERNELS_CUDA_TEAM_QUEUE_STREAM_H_

// A CUDA stream that waits for others, also of other devices, and others for
// it.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/marks.h"

namespace attnd::cuda {

// A point in what a stream has had put into it.
struct StreamPoint {
  uint64_t stream = 0;          // tells it from all others of the process
  int64_t number = 0;           // of the stream's points, in order
  cudaEvent_t event = nullptr;  // null: the stream's beginning
};

// For one thread at a time, with its device current. Any thread may use the
// points that it gave, until Reset. Every error means that the device is
// broken.
class QueueStream {
 public:
  enum class Priority { kNormal, kHigh };
  // Of the current device.
  static absl::StatusOr<std::unique_ptr<QueueStream>> Create(Priority priority);
  // Waits for all that was put into it, or for the device to have given it up.
  ~QueueStream();
  QueueStream(const QueueStream&) = delete;
  QueueStream& operator=(const QueueStream&) = delete;

  // Whoever puts something into it calls Use.
  cudaStream_t get() const { return stream_; }
  void Use() { moved_ = busy_ = true; }

  // What comes into it from now on happens after `point`, of this stream or
  // another. Costs nothing where that is so already.
  absl::Status Await(const StreamPoint& point);
  // Where it stands. Costs nothing where that has been asked since the last
  // Use.
  absl::StatusOr<StreamPoint> Here();
  // Until all that was put into it has happened.
  absl::Status Wait();
  // The same, whatever becomes of it.
  void WaitAnyhow();
  // It stands at its beginning again; nobody may use its points any more.
  void Reset();

 private:
  explicit QueueStream(cudaStream_t stream);

  const uint64_t id_;
  const cudaStream_t stream_;
  Marks marks_;
  int64_t points_ = 0;  // ever
  StreamPoint here_;
  bool moved_ = false;  // since here_
  bool busy_ = false;   // since the last Wait
  // Of each stream that this one waits for the last point that it awaits.
  absl::flat_hash_map<uint64_t, int64_t> awaited_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TEAM_QUEUE_STREAM_H_
