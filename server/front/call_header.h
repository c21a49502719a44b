#ifndef ATTND_SERVER_FRONT_CALL_HEADER_H_
#define ATTND_SERVER_FRONT_CALL_HEADER_H_

// What is known of a call before its first message. No gRPC in here.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/front/upload_room.h"
#include "server/identity/callers.h"
#include "server/telemetry/call_log.h"
#include "server/work/work.h"

namespace attnd::server {

struct CallHeader {
  Sender sender;
  absl::Time deadline = absl::InfiniteFuture();  // of MonotonicNow()
  // The text under kRequestBytesKey.
  std::optional<std::string> request_bytes;
  CallIds ids;
  // Who calls, if it may; the sender's client is the caller's.
  absl::StatusOr<Caller> caller = Caller();

  // What a client says of its message's length, if it says anything.
  // INVALID_ARGUMENT, naming the key: it is no number of bytes.
  absl::StatusOr<std::optional<int64_t>> Hint() const;

  // Adds a call that began at `started` and ends now, with what is known of it
  // from here.
  void AddToLog(CallRecord record, absl::Time started, CallLog& log) const;

  // What the call's work has of its caller, once its message has been read, and
  // of its deadline. Only if the caller may call.
  void Sign(Work& work) const;
};

// The code that the client got of a call that began at `started` and ends with
// `code`: its own when it gave up, as `cancelled` says, before ours arrived.
absl::StatusCode CodeSeen(const CallHeader& header, absl::Time started,
                          absl::StatusCode code, bool cancelled);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_CALL_HEADER_H_
