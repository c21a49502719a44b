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

namespace attnd::server {

struct CallHeader {
  Sender sender;
  absl::Time deadline = absl::InfiniteFuture();  // of MonotonicNow()
  // The text under kRequestBytesKey.
  std::optional<std::string> request_bytes;

  // What a client says of its message's length, if it says anything.
  // INVALID_ARGUMENT, naming the key: it is no number of bytes.
  absl::StatusOr<std::optional<int64_t>> Hint() const;
};

// The code that the client got of a call that began at `started` and ends with
// `code`: its own when it gave up, as `cancelled` says, before ours arrived.
absl::StatusCode CodeSeen(const CallHeader& header, absl::Time started,
                          absl::StatusCode code, bool cancelled);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_CALL_HEADER_H_
