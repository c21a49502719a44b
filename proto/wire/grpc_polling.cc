#include "proto/wire/grpc_polling.h"

#include <cstdlib>

namespace attnd::wire {

void PollByQueue() { setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0); }

}  // namespace attnd::wire
