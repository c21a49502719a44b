#ifndef ATTND_CLIENT_ATTNLOAD_PLACED_TENSORS_H_
#define ATTND_CLIENT_ATTNLOAD_PLACED_TENSORS_H_

// A load's tensors in regions.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "base/mutex.h"
#include "client/attnload/load.h"
#include "client/attnload/payload.h"
#include "client/region_memory.h"

namespace attnd::attnload {

// The inputs of each shape, which its requests share, and slots for results:
// each has room for an answer of any shape. Thread-safe.
class PlacedTensors {
 public:
  // Leases for the inputs and for `slots` of them, at most `most_bytes` each,
  // or as the largest piece has it; copies the inputs there.
  static absl::StatusOr<std::unique_ptr<PlacedTensors>> Place(
      const client::TransportFlags& flags, Workload& workload, int64_t slots,
      int64_t most_bytes, absl::Duration timeout);

  const client::RegionMemory& memory() const { return *memory_; }

  // There is one for each request in flight.
  char* TakeSlot();
  void GiveBack(char* slot);

  // Has a call of the payload of that shape point to its inputs here, and to
  // `slot`.
  template <typename Call>
  void Point(size_t shape, char* slot, Call& call) const;
  // What `answer`, which a call of the payload has for its results, holds, to
  // the slot; and back. Errors as RegionMemory's.
  absl::Status CopyIn(const Payload& payload, Answer& answer, char* slot) const;
  absl::Status CopyOut(const Payload& payload, const char* slot,
                       Answer& answer) const;

 private:
  std::unique_ptr<client::RegionMemory> memory_;
  // Of each shape, in InputsOf's order; null: absent.
  std::vector<std::vector<char*>> inputs_;
  Mutex mutex_;
  std::vector<char*> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_PLACED_TENSORS_H_
