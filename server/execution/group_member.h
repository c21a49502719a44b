#ifndef ATTND_SERVER_EXECUTION_GROUP_MEMBER_H_
#define ATTND_SERVER_EXECUTION_GROUP_MEMBER_H_

// One request of a group on the group's stream. Where its inputs may lie and
// where its results may go is known here alone.

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/request.h"
#include "server/execution/upload.h"
#include "server/work/output_pool.h"
#include "server/work/region.h"
#include "server/work/work.h"

namespace attnd::server {

class GroupMember {
 public:
  enum class State { kLoading, kLoaded, kDeferred, kFailed };

  explicit GroupMember(WorkPtr work) : work_(std::move(work)) {}

  // Null once it was taken.
  const WorkPtr& work() const { return work_; }
  State state() const { return state_; }
  // With its inputs where kernels read them; null before.
  const BoundRequest* bound() const { return bound_.get(); }

  // Everything up to the kernels; then kLoaded, or kFailed if it was cancelled
  // or there is no memory, or kDeferred if that is so and it `may_defer`; or
  // still kLoading if pause() was true, for another call to go on. Releases the
  // inputs once it is loaded or failed. Errors: the device is broken.
  absl::Status Load(const Backend& backend, Stream& stream, OutputPool& pool,
                    bool may_defer, absl::FunctionRef<bool()> pause);
  // Whether the stream has been asked for any of it.
  bool enqueued() const { return reserved_; }
  void Fail(absl::Status failure);
  // Brings the results to where they are sent from. Errors: the device is
  // broken.
  absl::Status Download(Stream& stream);

  // What it ends with, once the results are there; `group` has what its members
  // share. CANCELLED if it was meanwhile.
  absl::StatusOr<WorkResult> TakeResult(const WorkResult& group);
  // Lets go of memory for results, too.
  WorkPtr Take();

 private:
  absl::Status Reserve(const Backend& backend, Stream& stream,
                       OutputPool& pool);
  absl::Status ReserveInputs(const Backend& backend, Stream& stream);
  absl::Status ReserveOutput(TensorId id, Stream& stream, OutputPool& pool);
  // False: paused.
  absl::StatusOr<bool> Fetch(const Backend& backend, Stream& stream,
                             absl::FunctionRef<bool()> pause);
  absl::Status FetchFromRegion(const RegionBytes& from, TensorId id,
                               const Backend& backend, Stream& stream);
  void Bind(const Backend& backend);

  WorkPtr work_;
  State state_ = State::kLoading;
  bool reserved_ = false;
  int fetched_ = 0;          // tensors before this one have been
  UploadPosition position_;  // in it
  absl::Status failure_;     // of kFailed
  TensorPointers memory_;
  PerTensor<OutputBuffer> outputs_;
  // Those that the device reads or writes: as long as it may.
  std::vector<std::shared_ptr<const Region>> regions_;
  std::unique_ptr<BoundRequest> bound_;
  KernelInfo kernel_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_GROUP_MEMBER_H_
