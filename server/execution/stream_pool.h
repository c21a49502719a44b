#ifndef ATTND_SERVER_EXECUTION_STREAM_POOL_H_
#define ATTND_SERVER_EXECUTION_STREAM_POOL_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/backend.h"

namespace attnd::server {

// A device's streams, made at its start so that no run ever lacks one: one for
// each lane, and one for each run that may be paused, which keeps its own.
// Thread-safe.
class StreamPool {
 public:
  // Any error of Backend::NewStream.
  static absl::StatusOr<std::unique_ptr<StreamPool>> Create(Backend& backend,
                                                            int streams);

  // The one that was returned last, which has touched its memory. Not more of
  // them at once than there are.
  std::unique_ptr<Stream> Take();
  // It has been reset. One of a device that broke is not returned.
  void Return(std::unique_ptr<Stream> stream);

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Stream>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_STREAM_POOL_H_
