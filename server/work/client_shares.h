#ifndef ATTND_SERVER_WORK_CLIENT_SHARES_H_
#define ATTND_SERVER_WORK_CLIENT_SHARES_H_

// Who holds how much of a limit that clients share. A client may add to what it
// holds while that is at most kShare times the room left: one that fills a
// limit alone leaves a ninth of it, so whoever comes next is not shut out, and
// fair turns mean something.

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace attnd::server {

// Not thread-safe.
class ClientShares {
 public:
  static constexpr double kShare = 8;

  explicit ClientShares(double limit) : limit_(limit) {}

  // Whether `client`'s share allows more; the limit itself is the caller's.
  // One that holds nothing always may.
  bool MayAdd(const std::string& client) const;
  void Add(const std::string& client, double amount);
  // What was added before.
  void Remove(const std::string& client, double amount);
  // What `client` holds.
  double Of(const std::string& client) const;

 private:
  struct Held {
    int64_t entries = 0;
    double amount = 0;
  };

  double limit_;
  double held_ = 0;
  absl::flat_hash_map<std::string, Held> clients_;  // those that hold anything
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_CLIENT_SHARES_H_
