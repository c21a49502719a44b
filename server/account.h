#ifndef ATTND_SERVER_ACCOUNT_H_
#define ATTND_SERVER_ACCOUNT_H_

// The one byte account: what every request in the process holds, from
// admission until the transport drops its last response byte.

#include <cstdint>
#include <memory>
#include <mutex>

namespace attnd::server {

class Account;

// Bytes held on an account; given back on destruction. Outlives nothing: it
// keeps the account alive.
class Charge {
 public:
  Charge(std::shared_ptr<Account> account, int64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {}
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Account> account_;
  int64_t bytes_;
};

// Thread-safe.
class Account : public std::enable_shared_from_this<Account> {
 public:
  static std::shared_ptr<Account> Create(int64_t limit_bytes);

  // Null when `bytes` do not fit beside what is held now.
  std::shared_ptr<Charge> TryCharge(int64_t bytes);

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t held_bytes() const;

 private:
  friend class Charge;
  explicit Account(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  void Release(int64_t bytes);

  const int64_t limit_bytes_;
  mutable std::mutex mutex_;
  int64_t held_bytes_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ACCOUNT_H_
