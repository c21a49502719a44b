#include "proto/wire/grpc_process.h"

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace attnd::wire {

void PrepareForGrpc() {
  setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*overwrite=*/0);
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

}  // namespace attnd::wire
