#ifndef ATTND_SERVER_EXECUTION_GROUP_RUN_H_
#define ATTND_SERVER_EXECUTION_GROUP_RUN_H_

// One group of compatible requests on one stream, start to end:
//
//   allocate and map -> upload, release inputs -> kernels -> download
//   -> wait, result by result
//
// No threads and no queue in here.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "server/execution/group_member.h"
#include "server/work/account.h"
#include "server/work/output_pool.h"
#include "server/work/work.h"

namespace attnd::server {

class GroupRun {
 public:
  struct Completed {
    WorkPtr work;
    // CANCELLED if its token was set; RESOURCE_EXHAUSTED if it alone found no
    // memory.
    absl::StatusOr<WorkResult> result;
  };
  using Complete = absl::FunctionRef<void(Completed)>;

  // All outlive the run; the stream has been reset. `works` share op, dtype,
  // head dims and options, and stay with the run until they are completed or
  // taken back.
  GroupRun(const Backend& backend, Stream& stream, OutputPool& pool,
           std::vector<WorkPtr> works);

  // Hands each member to `complete` once its results are there, the last ones
  // after the stream was reset; what is deferred stays. Calls release_inputs of
  // what it has uploaded or will not upload. Not OK: what broke the device; the
  // stream must go before anything that is left completes, as the device may
  // still write.
  absl::Status Execute(Complete complete);

  // Once, after Execute was OK: members that found no memory beside the others,
  // to be run next.
  std::vector<WorkPtr> TakeDeferred();
  // Once, after Execute failed and the stream is gone: all that have not
  // completed.
  std::vector<WorkPtr> TakeAll();

 private:
  using State = GroupMember::State;
  // Members up to `end` whose results go before others' have been downloaded.
  struct Portion {
    size_t end = 0;
    int mark = 0;
  };

  absl::Status LoadAll();
  void Divide();
  absl::Status Launch(absl::Span<GroupMember> members);
  absl::Status Enqueue(absl::Span<const GroupMember> members);
  absl::Status DownloadAll();
  absl::Status WaitForPortions(Complete complete);
  absl::Status Finish(Complete complete);
  void CompleteUpTo(size_t end, Complete complete);

  const Backend& backend_;
  Stream& stream_;
  OutputPool& pool_;
  std::vector<GroupMember> members_;
  GroupOptions options_;
  Op op_ = Op::kForward;
  int loaded_ = 0;
  bool enqueued_ = false;  // uploads at least, so that Wait is due
  std::vector<Portion> portions_;
  size_t completed_ = 0;  // members [0, completed_) have been
  // Of members that went early: what they had on the device is there until the
  // stream is reset.
  std::vector<std::shared_ptr<Charge>> charges_;
  PhaseTimes times_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_GROUP_RUN_H_
