#ifndef ATTND_SERVER_EXECUTION_LANE_H_
#define ATTND_SERVER_EXECUTION_LANE_H_

// One thread with one stream: asks its feeder for a group, runs it start to end
// and hands the results back, until there is nothing more to come or its
// device breaks. Lanes of a device overlap one another's copies and kernels.
// A lane never waits for a client.

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/work/output_pool.h"
#include "server/work/work.h"

namespace attnd::server {

// Where lanes get work and leave it. Called by several lanes at once.
class LaneFeeder {
 public:
  virtual ~LaneFeeder() = default;

  // Blocks until there is a group for lane `lane`. Empty: the lane ends.
  virtual std::vector<std::shared_ptr<Work>> NextGroup(int lane) = 0;
  // Every work of a group comes back exactly once, without locks held.
  virtual void Complete(std::shared_ptr<Work> work,
                        absl::StatusOr<WorkResult> result) = 0;
  // The lane's device broke: NextGroup gives this lane nothing any more. Called
  // before its group completes, with the stream already gone.
  virtual void DeviceFault(int lane, const absl::Status& status) = 0;
};

class Lane {
 public:
  // All but the stream outlive the lane.
  Lane(int index, const Backend& backend, std::unique_ptr<Stream> stream,
       OutputPool& pool, LaneFeeder& feeder);
  // Joins the thread: the feeder must let it end.
  ~Lane();

  // Runs a group to its end. For the lane's own thread, and for another while
  // that one waits in NextGroup and is kept there.
  void Run(std::vector<std::shared_ptr<Work>> works);

 private:
  void Loop();

  const int index_;
  const Backend& backend_;
  std::unique_ptr<Stream> stream_;
  OutputPool& pool_;
  LaneFeeder& feeder_;
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_LANE_H_
