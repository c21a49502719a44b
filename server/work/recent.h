#ifndef ATTND_SERVER_WORK_RECENT_H_
#define ATTND_SERVER_WORK_RECENT_H_

#include <cstddef>
#include <list>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace attnd::server {

// What is known of the last `capacity` names that were asked or told about.
// Not thread-safe.
template <typename Value>
class Recent {
 public:
  explicit Recent(size_t capacity) : capacity_(capacity) {}

  // Null: nothing is known of it any more. Valid until the next call.
  const Value* Find(const std::string& name) {
    auto found = entries_.find(name);
    if (found == entries_.end()) return nullptr;
    order_.splice(order_.end(), order_, found->second);
    return &found->second->second;
  }

  void Set(const std::string& name, Value value) {
    auto found = entries_.find(name);
    if (found != entries_.end()) {
      found->second->second = std::move(value);
      order_.splice(order_.end(), order_, found->second);
      return;
    }
    if (entries_.size() == capacity_) {
      entries_.erase(order_.front().first);
      order_.pop_front();
    }
    order_.emplace_back(name, std::move(value));
    entries_.emplace(name, std::prev(order_.end()));
  }

 private:
  using Order = std::list<std::pair<std::string, Value>>;

  const size_t capacity_;
  Order order_;  // longest ago first
  absl::flat_hash_map<std::string, typename Order::iterator> entries_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_RECENT_H_
