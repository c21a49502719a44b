#include "server/front/known_requests.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace attnd::server {

uint64_t KnownRequests::HashOf(Op op, absl::string_view message) {
  return absl::HashOf(op, message);
}

const KnownRequests::Entry* KnownRequests::Find(
    Op op, absl::string_view message) const {
  if (message.size() > kLongest) return nullptr;
  const uint64_t hash = HashOf(op, message);
  for (const Kept& kept : kept_) {
    if (kept.hash == hash && kept.op == op && kept.message == message) {
      return kept.entry.request == nullptr ? nullptr : &kept.entry;
    }
  }
  return nullptr;
}

void KnownRequests::Add(Op op, absl::string_view message, const Entry& entry) {
  if (message.size() > kLongest) return;
  const uint64_t hash = HashOf(op, message);
  if (std::find(once_.begin(), once_.end(), hash) == once_.end()) {
    once_[next_once_++ % once_.size()] = hash;
    return;
  }
  Kept& kept = kept_[next_kept_++ % kMost];
  kept.hash = hash;
  kept.op = op;
  kept.message.assign(message.data(), message.size());
  kept.entry = entry;
  kept.ids.clear();
  kept.ids.reserve(entry.slices.size());
  for (RegionSlice& slice : kept.entry.slices) {
    kept.ids.push_back(*slice.region);
    slice.region = &kept.ids.back();
  }
}

}  // namespace attnd::server
