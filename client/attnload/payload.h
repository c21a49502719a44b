#ifndef ATTND_CLIENT_ATTNLOAD_PAYLOAD_H_
#define ATTND_CLIENT_ATTNLOAD_PAYLOAD_H_

// What a load sends, and where the answers go.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "attnd/client.h"
#include "base/mutex.h"
#include "client/attnload/shape.h"

namespace attnd::attnload {

// Memory for one answer. Forward: `a` is O, `rows` LSE. Backward: dQ, dK, dV.
struct Answer {
  std::vector<std::byte> a, b, c;
  std::vector<float> rows;
};

// Random inputs of one shape, which all its requests share. Immutable apart
// from the pool of answers, which is thread-safe.
class Payload {
 public:
  Payload(const Shape& shape, uint64_t seed);

  const Shape& shape() const { return shape_; }

  client::ForwardCall Forward(Answer& answer) const;
  client::BackwardCall Backward(Answer& answer) const;

  // Memory of the shape's size with anything in it.
  std::unique_ptr<Answer> TakeAnswer();
  void GiveBack(std::unique_ptr<Answer> answer);
  // Fills it with NaN, so that what was not written shows.
  static void Poison(Answer& answer);

  const std::byte* q() const { return q_.data(); }
  const std::byte* k() const { return k_.data(); }
  const std::byte* v() const { return v_.data(); }
  const std::byte* d_o() const { return d_o_.data(); }
  const std::byte* o() const { return o_.data(); }
  const float* lse() const { return lse_.data(); }

 private:
  const Shape shape_;
  std::vector<std::byte> q_, k_, v_, d_o_, o_;
  std::vector<float> lse_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Answer>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_PAYLOAD_H_
