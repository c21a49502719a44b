#ifndef ATTND_KERNELS_CUDA_TEAM_MEMBER_QUEUE_H_
#define ATTND_KERNELS_CUDA_TEAM_MEMBER_QUEUE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/team/queue_stream.h"

namespace attnd::cuda {

// A queue of a member. It has a CUDA stream, or several that side by side do
// parts of what is put into it: pulls from different devices need not wait for
// each other. What it awaits, all of them await; a point in it is one in each
// of them. For one thread at a time, with its device current. Every error means
// that the device is broken.
class MemberQueue {
 public:
  // A point in a queue: what comes after it comes after all of these.
  using Point = absl::InlinedVector<StreamPoint, 2>;

  // Its streams are made when they are needed, with this priority.
  explicit MemberQueue(QueueStream::Priority priority) : priority_(priority) {}
  // It has this one, its part 0.
  explicit MemberQueue(std::unique_ptr<QueueStream> stream);
  // That one; for what lives as long as the queue.
  cudaStream_t stream() const { return parts_.front().stream->get(); }

  // The stream of a part, made when it is first asked for; for what its caller
  // puts into it next.
  absl::StatusOr<QueueStream*> Enter(int part);
  // What comes into the queue from now on happens after `point`.
  void Await(const Point& point);
  // Where it stands.
  absl::StatusOr<Point> Here();

  // As a QueueStream's, of all of its streams; the first error.
  absl::Status Wait();
  void WaitAnyhow();
  void Reset();

 private:
  struct Part {
    int number = 0;
    std::unique_ptr<QueueStream> stream;
    size_t awaits = 0;  // that many of awaited_
  };
  absl::StatusOr<Part*> Find(int number);

  const QueueStream::Priority priority_ = QueueStream::Priority::kNormal;
  std::vector<Part> parts_;
  // Since Reset. A stream awaits them when it is used next: those that nothing
  // is put into wait for nobody.
  std::vector<StreamPoint> awaited_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TEAM_MEMBER_QUEUE_H_
