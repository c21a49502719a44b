#ifndef ATTND_SERVER_EXECUTION_GROUP_RUN_H_
#define ATTND_SERVER_EXECUTION_GROUP_RUN_H_

// One group of compatible requests on one stream, start to end:
//
//   allocate and map -> upload, release inputs -> kernels -> download -> wait
//
// No threads and no queue in here.

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/request.h"
#include "server/work/output_pool.h"
#include "server/work/work.h"

namespace attnd::server {

class GroupRun {
 public:
  // All outlive the run; the stream has been reset. `works` share op, dtype,
  // head dims and options, and stay with the run until they are taken back.
  GroupRun(const Backend& backend, Stream& stream, OutputPool& pool,
           std::vector<std::shared_ptr<Work>> works);

  // OK, or what broke the device: nothing has completed then, and the stream
  // must go first, as the device may still write. Calls release_inputs of
  // what it has uploaded or will not upload.
  absl::Status Execute();

  struct Completed {
    std::shared_ptr<Work> work;
    // CANCELLED if its token was set; RESOURCE_EXHAUSTED if it alone found no
    // memory.
    absl::StatusOr<WorkResult> result;
  };
  // Once, after Execute was OK and the stream was reset.
  std::vector<Completed> TakeCompleted();
  // Likewise: members that found no memory beside the others, to be run next.
  std::vector<std::shared_ptr<Work>> TakeDeferred();
  // Once, after Execute failed and the stream is gone: everything.
  std::vector<std::shared_ptr<Work>> TakeAll();

 private:
  enum class State { kLoaded, kDeferred, kFailed };
  struct Member {
    std::shared_ptr<Work> work;
    State state = State::kLoaded;
    absl::Status failure;  // of kFailed
    TensorPointers memory;
    PerTensor<OutputBuffer> outputs;
    std::unique_ptr<BoundRequest> bound;
    KernelInfo kernel;
  };

  absl::Status Load(Member& member);
  absl::Status Reserve(Member& member);
  absl::Status Upload(Member& member);
  void Bind(Member& member);
  absl::Status Launch(absl::Span<Member> members);
  absl::Status Enqueue(absl::Span<const Member> members);
  absl::Status Download();

  const Backend& backend_;
  Stream& stream_;
  OutputPool& pool_;
  std::vector<Member> members_;
  GroupOptions options_;
  Op op_ = Op::kForward;
  int loaded_ = 0;
  bool enqueued_ = false;  // uploads at least, so that Wait is due
  PhaseTimes times_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_GROUP_RUN_H_
