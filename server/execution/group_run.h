#ifndef ATTND_SERVER_EXECUTION_GROUP_RUN_H_
#define ATTND_SERVER_EXECUTION_GROUP_RUN_H_

// One group of compatible requests on one stream, start to end:
//
//   allocate and map -> upload, release inputs -> kernels -> download
//   -> wait, result by result
//
// A request that takes long may be paused between two parts of its upload or of
// its kernels. No threads and no queue in here.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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
  using Pause = absl::FunctionRef<bool()>;
  enum class Outcome { kDone, kPaused };

  // Backend and pool outlive the run; the stream, one of the backend's, has
  // been reset. `works` share op, dtype, head dims and options, and stay with
  // the run until they are completed or taken back.
  GroupRun(const Backend& backend, std::unique_ptr<Stream> stream,
           OutputPool& pool, std::vector<WorkPtr> works);

  // Enqueues what Execute begins with: uploads, and kernels or the first of
  // them. For whoever has less to do than the thread that Execute will be
  // called on, once, takes to wake up. What goes wrong, Execute says.
  void Begin();
  // Work::under_way of its works, of each once: for whoever calls them. After
  // Begin, and not beside Execute.
  std::vector<absl::AnyInvocable<void()>> TakeUnderWay();

  // Hands each member to `complete` once its results are there, the last ones
  // after the stream was reset; what is deferred stays. Calls release_inputs of
  // what it has uploaded or will not upload. Not OK: what broke the device; the
  // stream must go before anything that is left completes, as the device may
  // still write.
  //
  // kPaused: `pause`, which is called between two pieces of an upload, and as
  // Stream::Proceed says, was true. A later call goes on, on any thread;
  // nothing has completed so far, but inputs may not have been released. Only
  // for a group of one.
  absl::StatusOr<Outcome> Execute(Pause pause, Complete complete);

  const Backend& backend() const { return backend_; }
  // Of a group of one.
  const Work& work() const { return *members_.front().work(); }
  // Paused: what is left of that which was left when Execute was called last.
  double left() const { return (1 - share_) / (1 - share_before_); }
  // Paused: gives it up, once the device has done what it had begun. Its work
  // may have completed before. An error: the device is broken, and the stream
  // must go before the run does.
  absl::Status Abandon();

  // Done, or abandoned: the stream, which has been reset.
  std::unique_ptr<Stream> TakeStream() { return std::move(stream_); }
  // Once, when it is done: members that found no memory beside the others, to
  // be run next.
  std::vector<WorkPtr> TakeDeferred();
  // After an error.
  void DropStream() { stream_.reset(); }
  // Once, with the stream gone: all that have not completed.
  std::vector<WorkPtr> TakeAll();

 private:
  using State = GroupMember::State;
  // Members up to `end` whose results go before others' have been downloaded.
  struct Portion {
    size_t end = 0;
    int mark = 0;
  };

  absl::Status LoadAndLaunch(Pause pause);
  absl::Status LoadAll(Pause pause);
  void Divide();
  absl::Status Launch(absl::Span<GroupMember> members);
  absl::Status Enqueue(absl::Span<const GroupMember> members);
  absl::Status Proceed(Pause pause);
  absl::Status Collect(Complete complete);
  absl::Status DownloadAll();
  absl::Status WaitForPortions(Complete complete);
  void CompleteUpTo(size_t end, Complete complete);

  const Backend& backend_;
  OutputPool& pool_;
  std::vector<GroupMember> members_;
  GroupOptions options_;
  int loaded_ = 0;
  bool enqueued_ = false;  // uploads at least, so that Wait is due
  bool begun_ = false;     // all have been loaded, and kernels launched
  // What the stream has begun last: stays for Proceed.
  std::vector<ForwardArgs> forward_;
  std::vector<BackwardArgs> backward_;
  double share_ = 0, share_before_ = 0;  // of it, enqueued
  std::vector<Portion> portions_;
  int uploaded_ = 0;      // a mark, if there are portions
  size_t completed_ = 0;  // members [0, completed_) have been
  // Of members that went early: what they had on the device is there until the
  // stream is reset.
  std::vector<std::shared_ptr<Charge>> charges_;
  std::optional<absl::Status> early_;  // of Begin
  absl::Time taken_;
  std::optional<absl::Time> paused_at_;  // the last time
  absl::Duration paused_;                // all times together
  PhaseTimes times_;
  std::optional<PlanReport> plan_;  // the stream's, once it has waited
  // Goes first: the device may write to the members' memory until then.
  std::unique_ptr<Stream> stream_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_GROUP_RUN_H_
