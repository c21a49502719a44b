#ifndef ATTND_SERVER_FRONT_MESSAGE_WATCH_H_
#define ATTND_SERVER_FRONT_MESSAGE_WATCH_H_

// Looks after a message that gRPC is reading for a call. gRPC takes a message
// however long it is, and tells nobody of its length before all of it is here.
// So while it arrives a call looks now and then at the time and at the memory
// in use, and ends if there is too much of either: of memory first those that
// did not say how long their message is, or said that it is small, as a small
// one is here by then; and only at more excess others. No gRPC in here.

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/front/upload_room.h"

namespace attnd::server {

// For one caller at a time.
class MessageWatch {
 public:
  static constexpr absl::Duration kLookAtMemory = absl::Milliseconds(3);
  static constexpr int64_t kMoreExcess = int64_t{16} << 20;

  // The message, whose room `upload` is, is being read from now on, and may
  // take `most`. `excess_memory` outlives the watch, and may be null: see
  // excess_memory.h.
  MessageWatch(std::shared_ptr<UploadRoom::Upload> upload, absl::Duration most,
               const std::function<int64_t()>& excess_memory);

  // When to look next.
  absl::Time next_look() const;
  // OK: look again. Else what the call ends with, its room still held:
  //   DEADLINE_EXCEEDED   the message took longer than it may
  //   RESOURCE_EXHAUSTED  there is too much of it, or of others
  absl::Status Look();

 private:
  bool IsInExcess() const;
  void SetLate(absl::Time now);

  const std::shared_ptr<UploadRoom::Upload> upload_;
  const absl::Time end_;
  const std::function<int64_t()>& excess_memory_;
  absl::Time late_;  // when to ask the room what to do with it
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_MESSAGE_WATCH_H_
