#include "kernels/cuda/team/member_queue.h"

#include <algorithm>
#include <utility>

namespace attnd::cuda {

MemberQueue::MemberQueue(std::unique_ptr<QueueStream> stream) {
  parts_.push_back({.stream = std::move(stream)});
}

absl::StatusOr<MemberQueue::Part*> MemberQueue::Find(int number) {
  for (Part& part : parts_) {
    if (part.number == number) return &part;
  }
  absl::StatusOr<std::unique_ptr<QueueStream>> stream =
      QueueStream::Create(priority_);
  if (!stream.ok()) return stream.status();
  parts_.push_back({.number = number, .stream = *std::move(stream)});
  return &parts_.back();
}

absl::StatusOr<QueueStream*> MemberQueue::Enter(int part) {
  const absl::StatusOr<Part*> found = Find(part);
  if (!found.ok()) return found.status();
  QueueStream& stream = *(*found)->stream;
  for (size_t& next = (*found)->awaits; next < awaited_.size(); ++next) {
    absl::Status status = stream.Await(awaited_[next]);
    if (!status.ok()) return status;
  }
  stream.Use();
  return &stream;
}

void MemberQueue::Await(const Point& point) {
  awaited_.insert(awaited_.end(), point.begin(), point.end());
}

absl::StatusOr<MemberQueue::Point> MemberQueue::Here() {
  Point point;
  size_t awaits = 0;
  for (const Part& part : parts_) {
    const absl::StatusOr<StreamPoint> here = part.stream->Here();
    if (!here.ok()) return here.status();
    if (here->event != nullptr) point.push_back(*here);
    awaits = std::max(awaits, part.awaits);
  }
  // What the queue awaits and none of its streams does yet.
  point.insert(point.end(), awaited_.begin() + awaits, awaited_.end());
  return point;
}

absl::Status MemberQueue::Wait() {
  absl::Status status;
  for (const Part& part : parts_) status.Update(part.stream->Wait());
  return status;
}

void MemberQueue::WaitAnyhow() {
  for (const Part& part : parts_) part.stream->WaitAnyhow();
}

void MemberQueue::Reset() {
  for (Part& part : parts_) {
    part.stream->Reset();
    part.awaits = 0;
  }
  awaited_.clear();
}

}  // namespace attnd::cuda
