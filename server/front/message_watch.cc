#include "server/front/message_watch.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace attnd::server {

MessageWatch::MessageWatch(std::shared_ptr<UploadRoom::Upload> upload,
                           absl::Duration most,
                           const std::function<int64_t()>& excess_memory)
    : upload_(std::move(upload)),
      end_(MonotonicNow() + most),
      excess_memory_(excess_memory) {
  SetLate(MonotonicNow());
}

void MessageWatch::SetLate(absl::Time now) {
  late_ = end_;
  if (const auto late_after = upload_->late_after()) {
    late_ = std::min(late_, now + *late_after);
  }
}

absl::Time MessageWatch::next_look() const {
  return excess_memory_ ? std::min(MonotonicNow() + kLookAtMemory, late_)
                        : late_;
}

bool MessageWatch::IsInExcess() const {
  if (!excess_memory_) return false;
  const bool said_large = upload_->hint().value_or(0) > UploadRoom::kSmallBytes;
  return excess_memory_() > (said_large ? kMoreExcess : 0);
}

absl::Status MessageWatch::Look() {
  const absl::Time now = MonotonicNow();
  if (now >= end_) {
    return absl::DeadlineExceededError(
        "the message did not arrive within the time that it has");
  }
  if (IsInExcess()) return upload_->Excess();
  if (now >= late_) {
    const int64_t spare = excess_memory_ ? -excess_memory_() : 0;
    if (absl::Status status = upload_->Late(spare); !status.ok()) return status;
    SetLate(now);
  }
  return absl::OkStatus();
}

}  // namespace attnd::server
