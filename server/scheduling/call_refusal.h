#ifndef ATTND_SERVER_SCHEDULING_CALL_REFUSAL_H_
#define ATTND_SERVER_SCHEDULING_CALL_REFUSAL_H_

// Why calls are refused, in words for metrics and for clients' programs.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace attnd::server {

enum class CallRefusal : uint8_t {
  // Whoever calls may not. These two are in no answer, so that nobody learns
  // from it what the server knows.
  kNoIdentity,  // it has none, and needs one
  kToken,       // its token is not known
  // Its client has what a client may have, by the flag of that name.
  kMaxClientRate,
  kMaxClientQueueBytes,
  kMaxClientQueueFlops,
  // There is no room now.
  kQueueFull,   // as many requests wait as may
  kQueueFlops,  // as much work waits as may
  kMemory,      // for its message, inputs, scratch or outputs
  // It can never be served here.
  kTooLarge,     // beyond a limit of the server or of its client
  kUnsupported,  // no kernel, or a field that is not known
  kInvalid,      // its fields are wrong
  // The server takes nothing.
  kDraining,
  kNoDevice,  // none that can run it is in service
};
inline constexpr int kCallRefusals = 13;

// "queue_full".
const char* NameOf(CallRefusal why);

// `status`, of any code but OK, with "QUEUE_FULL" as its ErrorInfo's reason.
// Not for the first two.
absl::Status Refused(CallRefusal why, const absl::Status& status);

// UNAVAILABLE for kDraining, which every part of the server that still gets
// calls says alike.
absl::Status ShuttingDown();

// Why a call that ended with `status` was refused: what Refused says or else,
// where it is enough, the code. Empty: it was not refused.
std::optional<CallRefusal> RefusalOf(const absl::Status& status);

// `status` as its client gets it: with the reason that RefusalOf finds.
absl::Status WithRefusal(const absl::Status& status);

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_CALL_REFUSAL_H_
