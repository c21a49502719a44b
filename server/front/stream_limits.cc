#include "server/front/stream_limits.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnd::server {

StreamLimits::Place::Place(Place&& other) noexcept
    : limits_(std::exchange(other.limits_, nullptr)),
      client_(std::move(other.client_)) {}

StreamLimits::Place::~Place() {
  if (limits_ != nullptr) limits_->Leave(client_);
}

absl::StatusOr<StreamLimits::Place> StreamLimits::Enter(
    const std::string& client) {
  MutexLock lock(mutex_);
  const auto found = by_client_.find(client);
  if (found != by_client_.end() && found->second >= most_per_client_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a client may have ", most_per_client_, " ", what_));
  }
  if (open_ >= most_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are as many ", what_, " as there may be"));
  }
  ++open_;
  ++by_client_[client];
  return Place(*this, client);
}

void StreamLimits::Leave(const std::string& client) {
  MutexLock lock(mutex_);
  --open_;
  const auto found = by_client_.find(client);
  if (--found->second == 0) by_client_.erase(found);
}

}  // namespace attnd::server
