#include "server/front/call_header.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/field_error.h"
#include "proto/wire/metadata.h"
#include "proto/wire/status.h"
#include "server/identity/peer.h"

namespace attnd::server {

absl::StatusOr<std::optional<int64_t>> CallHeader::Hint() const {
  if (!request_bytes.has_value()) return std::nullopt;
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(*request_bytes, &bytes) || bytes < 0) {
    return FieldError(wire::kRequestBytesKey,
                      absl::StrCat("\"", wire::Echo(*request_bytes),
                                   "\" is no number of bytes"));
  }
  return bytes;
}

void CallHeader::Sign(Work& work) const {
  work.client = sender.client;
  work.quota = caller->quota;
  work.priority = std::min(work.priority, caller->most_priority);
  work.deadline = deadline;
}

void CallHeader::AddToLog(CallRecord record, absl::Time started,
                          CallLog& log) const {
  const absl::Time now = MonotonicNow();
  record.total = now - started;
  record.ids = ids;
  // Who was not let in has an address all the same.
  record.client = caller.ok() ? sender.client : ClientOf(sender.connection);
  log.Add(std::move(record), now);
}

absl::StatusCode CodeSeen(const CallHeader& header, absl::Time started,
                          absl::StatusCode code, bool cancelled) {
  if (!cancelled) return code;
  if (header.deadline == absl::InfiniteFuture()) {
    return absl::StatusCode::kCancelled;
  }
  // A client whose deadline passes resets the stream, which looks like any
  // cancel. On the wire a timeout is rounded up by 1 % at most, and it starts
  // here when the headers arrive: ours passes that much later than its.
  const absl::Duration later =
      absl::Milliseconds(10) + (header.deadline - started) / 50;
  return MonotonicNow() + later >= header.deadline
             ? absl::StatusCode::kDeadlineExceeded
             : absl::StatusCode::kCancelled;
}

}  // namespace attnd::server
