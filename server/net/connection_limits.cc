#include "server/net/connection_limits.h"

namespace attnd::server {

std::optional<Refusal> ConnectionLimits::Add(const Origin& origin) {
  if (open(origin) >= most_per_origin_) {
    return Refusal::kMaxConnectionsPerClient;
  }
  if (open_ >= most_) return Refusal::kMaxConnections;
  ++open_;
  ++by_origin_[origin];
  return std::nullopt;
}

void ConnectionLimits::Remove(const Origin& origin) {
  const auto found = by_origin_.find(origin);
  if (found == by_origin_.end()) return;
  --open_;
  if (--found->second == 0) by_origin_.erase(found);
}

int ConnectionLimits::open(const Origin& origin) const {
  const auto found = by_origin_.find(origin);
  return found == by_origin_.end() ? 0 : found->second;
}

}  // namespace attnd::server
