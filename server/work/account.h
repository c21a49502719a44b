#ifndef ATTND_SERVER_WORK_ACCOUNT_H_
#define ATTND_SERVER_WORK_ACCOUNT_H_

// A byte account: what may be held of one kind of memory, and who holds how
// much of it. Requests have one for the whole process: they hold it from
// admission until the transport drops their last response byte. Whatever else
// is bounded apart from them gets an account of its own.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/work/client_shares.h"

namespace attnd::server {

class Account;

// Bytes held on an account, given back on destruction. Keeps its account.
class Charge {
 public:
  // For Account::TryCharge, which has booked the bytes.
  Charge(std::shared_ptr<Account> account, std::string client, int64_t bytes)
      : account_(std::move(account)),
        client_(std::move(client)),
        bytes_(bytes) {}
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Account> account_;
  std::string client_;
  int64_t bytes_;
};

// Thread-safe.
class Account : public std::enable_shared_from_this<Account> {
 public:
  static std::shared_ptr<Account> Create(int64_t limit_bytes);

  // Null when `bytes` do not fit beside what is held now, when they would leave
  // less than `keep_free` of the limit to others though something is held, when
  // `client` holds as much as it may (see client_shares.h), or when they are
  // negative.
  std::shared_ptr<Charge> TryCharge(const std::string& client, int64_t bytes,
                                    int64_t keep_free = 0);

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t held_bytes() const;
  int64_t held_bytes(const std::string& client) const;

 private:
  friend class Charge;
  explicit Account(int64_t limit_bytes)
      : limit_bytes_(limit_bytes), shares_(static_cast<double>(limit_bytes)) {}
  void Release(const std::string& client, int64_t bytes);

  const int64_t limit_bytes_;
  mutable Mutex mutex_;
  int64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  ClientShares shares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_ACCOUNT_H_
