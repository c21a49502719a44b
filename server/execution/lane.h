#ifndef ATTND_SERVER_EXECUTION_LANE_H_
#define ATTND_SERVER_EXECUTION_LANE_H_

// One thread that asks its feeder for a group, runs it start to end and hands
// the results back, until there is nothing more to come or its device breaks.
// Lanes of a device overlap one another's copies and kernels. A lane never
// waits for a client.
//
// A large work may be paused between: its run goes back to the feeder with its
// stream, and some lane of the device goes on with it later.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "server/execution/group_run.h"
#include "server/execution/stream_pool.h"
#include "server/work/output_pool.h"
#include "server/work/work.h"

namespace attnd::server {

// What a lane is to run.
struct Assignment {
  std::vector<WorkPtr> works;     // none: the lane ends
  std::unique_ptr<GroupRun> run;  // theirs, if it has begun; null: it has not
  bool may_pause = false;
};

// Where lanes get work and leave it. Called by several lanes at once.
class LaneFeeder {
 public:
  virtual ~LaneFeeder() = default;

  // Blocks until there is a group for lane `lane`.
  virtual Assignment NextGroup(int lane) = 0;
  // Keeps a run that was paused, and returns null; or returns it, to be run to
  // its end without another pause.
  virtual std::unique_ptr<GroupRun> Park(int lane,
                                         std::unique_ptr<GroupRun> run) = 0;
  // Every work comes back exactly once, without locks held, unless its run is
  // kept.
  virtual void Complete(WorkPtr work, absl::StatusOr<WorkResult> result) = 0;
  // The lane's device broke: NextGroup gives this lane nothing any more. Called
  // before what is left of its group completes, with the stream already gone.
  virtual void DeviceFault(int lane, const absl::Status& status) = 0;
};

class Lane {
 public:
  // All outlive the lane. What may be paused runs for `slice_time` at least.
  Lane(int index, const Backend& backend, StreamPool& streams, OutputPool& pool,
       absl::Duration slice_time, LaneFeeder& feeder);
  // Joins the thread: the feeder must let it end.
  ~Lane();

  // Runs a group to its end, or until it is parked. For the lane's own thread,
  // and for another while that one waits in NextGroup and is kept there.
  void Run(Assignment assignment);
  // Begins what Run is then to be called with, and waits for nothing that takes
  // long. For another thread, as Run.
  Assignment Begin(Assignment assignment);
  // Whether something waits for which a run should be paused. Thread-safe.
  void SetWanted(bool wanted) { wanted_ = wanted; }

 private:
  void Loop();
  std::unique_ptr<GroupRun> NewRun(std::vector<WorkPtr> works);
  void Fail(GroupRun& run, const absl::Status& status);

  const int index_;
  const Backend& backend_;
  StreamPool& streams_;
  OutputPool& pool_;
  const absl::Duration slice_time_;
  LaneFeeder& feeder_;
  std::atomic<bool> wanted_ = false;
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_LANE_H_
