#ifndef ATTND_KERNELS_TEAM_MEMBER_STREAM_H_
#define ATTND_KERNELS_TEAM_MEMBER_STREAM_H_

// One device of several that share a request, as the steps of a plan use it: a
// set of queues. Uploads happen in the order in which they come, and so do
// downloads; pulls may overlap, and so may what is computed. Queues wait for
// each other, and for themselves, only where they are told to:
//
//   a = member.Allocate(bytes)
//   member.Upload(host -> a)
//   member.Record(Queue::kUpload, 3)          everything up to here is point 3
//   other.Await(Queue::kPull, member, 3)
//   other.Pull(member, a -> b)
//   ...
//   member.Wait()                             all of it has happened
//   member.Reset()
//
// A device whose memory is the host's own may do everything at once, inside the
// calls.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/backend.h"

namespace attnd {

// `rows` runs of `row_bytes` each, which lie `pitch` bytes apart.
struct BlockCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int64_t from_pitch = 0, to_pitch = 0;
};

// to = terms[0] + terms[1] + ... in f32, in this order, rounded once: `rows`
// runs of `row_elements`.
struct BlockSum {
  // A device may refuse a sum of more terms.
  static constexpr int kMostTerms = 64;
  struct Term {
    const float* data = nullptr;
    int64_t pitch = 0;  // in elements, as all of these
  };
  absl::Span<const Term> terms;  // of this device
  void* to = nullptr;
  DType dtype = DType::kF32;
  int64_t to_pitch = 0;
  int64_t row_elements = 0, rows = 0;
};

// to[row] = sum over d of a[row, d] * b[row, d], in f32: delta of one sequence.
struct RowDots {
  ConstTensorView a, b;  // [1, rows, heads, dim], b of a's type or f32
  RowView to;            // [1, heads, rows]
  int64_t rows = 0, heads = 0, dim = 0;
};

// Results of one sequence's rows over several sets of columns, put together by
// (E19) and (E20) in this order, and rounded once. Rows that have seen nothing
// in any of them, and all rows where there are none, get O = 0 and LSE = -inf.
struct RowMerges {
  // A device may refuse a merge of more terms.
  static constexpr int kMostTerms = 64;
  absl::Span<const RowState> terms;  // of this device
  TensorView o;                      // [1, rows, heads, dim], or null
  RowView lse;                       // [1, heads, rows], or null
  int64_t rows = 0, heads = 0, dim = 0;
};

// Used by one thread at a time, but Record of one and Await of another, which
// refers to it, may run side by side. All streams of a team are of one kind of
// backend. An error: the device is broken, but for RESOURCE_EXHAUSTED from
// Allocate, Forward and Backward, which then have enqueued nothing. A stream
// may go at any time when no other has anything left to do with its memory.
class MemberStream {
 public:
  enum class Queue { kUpload, kPull, kCompute, kDownload };
  static constexpr int kQueues = 4;

  virtual ~MemberStream() = default;

  // Device memory until Reset, aligned to kTensorAlignment; undefined contents.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes) = 0;

  // From host memory that HostMemory gave or Pin has pinned, and that stays
  // until Wait. Queue::kUpload.
  virtual absl::Status Upload(const BlockCopy& copy) = 0;
  // From `peer`'s memory to this one's. Queue::kPull.
  virtual absl::Status Pull(MemberStream& peer, const BlockCopy& copy) = 0;
  // Several at once, in any order: sooner over where each is small.
  virtual absl::Status PullAll(MemberStream& peer,
                               absl::Span<const BlockCopy> copies) {
    for (const BlockCopy& copy : copies) {
      absl::Status status = Pull(peer, copy);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // To such host memory. Queue::kDownload.
  virtual absl::Status Download(const BlockCopy& copy) = 0;
  // Queue::kCompute, as the four after it. Problems as for a Stream's, in this
  // device's memory. May wait for what came before in order to enqueue a long
  // group slice by slice.
  virtual absl::Status Forward(absl::Span<const ForwardArgs> group,
                               const GroupOptions& options) = 0;
  virtual absl::Status Backward(absl::Span<const BackwardArgs> group,
                                const GroupOptions& options) = 0;
  virtual absl::Status Sum(const BlockSum& sum) = 0;
  virtual absl::Status Dot(const RowDots& dots) = 0;
  virtual absl::Status Merge(const RowMerges& merges) = 0;

  // Point `point` (>= 0, each once until Reset) of this stream is where `queue`
  // stands now: behind all that was put into it, and all that it awaits.
  virtual absl::Status Record(Queue queue, int point) = 0;
  // What comes into `queue` from now on happens after `point` of `of`, which
  // has been recorded; `of` may be this stream.
  virtual absl::Status Await(Queue queue, MemberStream& of, int point) = 0;

  // Whether what is pulled from `peer` comes directly. If not it takes a detour
  // through the host's memory, which is slow.
  virtual bool Reaches(MemberStream& /*peer*/) { return true; }

  // Until all that was enqueued has happened, or this device has given it up.
  // Times are this device's own.
  virtual absl::StatusOr<PhaseTimes> Wait() = 0;
  // Only after Wait, whatever it returned, of all streams of the team. Memory
  // goes, and so do points and what was awaited.
  virtual void Reset() = 0;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_MEMBER_STREAM_H_
