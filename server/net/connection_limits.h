#ifndef ATTND_SERVER_NET_CONNECTION_LIMITS_H_
#define ATTND_SERVER_NET_CONNECTION_LIMITS_H_

// How many connections there may be: in all, and from one origin. Decides from
// what it is told, without sockets, threads or time.

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "server/net/origin.h"

namespace attnd::server {

// Why a connection is refused.
enum class Refusal : uint8_t {
  kMaxConnections,           // as many are open as may be
  kMaxConnectionsPerClient,  // as many of its origin
  kNoDescriptor,             // the process or the system has none left
};
inline constexpr int kRefusals = 3;

// Not thread-safe.
class ConnectionLimits {
 public:
  ConnectionLimits(int most, int most_per_origin)
      : most_(most), most_per_origin_(most_per_origin) {}

  // Counts a connection of `origin`, or says why it may not be. An origin that
  // has all of its own is told so also when nobody may have more.
  std::optional<Refusal> Add(const Origin& origin);
  // One that was counted has ended.
  void Remove(const Origin& origin);

  int open() const { return open_; }
  int open(const Origin& origin) const;

 private:
  const int most_;
  const int most_per_origin_;
  int open_ = 0;
  // Those that have a connection, and so at most as many as there are of them.
  absl::flat_hash_map<Origin, int> by_origin_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_CONNECTION_LIMITS_H_
