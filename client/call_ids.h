#ifndef ATTND_CLIENT_CALL_IDS_H_
#define ATTND_CLIENT_CALL_IDS_H_

#include "absl/status/status.h"
#include "attnd/client.h"

namespace attnd::client {

// INVALID_ARGUMENT, naming the option, where the server would not take one of
// the ids that the caller gives a call.
absl::Status CheckIds(const CallOptions& options);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CALL_IDS_H_
