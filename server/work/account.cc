#include "server/work/account.h"

namespace attnd::server {

Charge::~Charge() { account_->Release(client_, bytes_); }

std::shared_ptr<Account> Account::Create(int64_t limit_bytes) {
  return std::shared_ptr<Account>(new Account(limit_bytes));
}

std::shared_ptr<Charge> Account::TryCharge(const std::string& client,
                                           int64_t bytes, int64_t keep_free) {
  {
    MutexLock lock(mutex_);
    // Written so that no `bytes` overflows: held_bytes_ <= limit_bytes_.
    const int64_t left = limit_bytes_ - held_bytes_;
    if (bytes < 0 || bytes > left) return nullptr;
    if (held_bytes_ > 0 && bytes > left - keep_free) return nullptr;
    if (!shares_.MayAdd(client)) return nullptr;
    shares_.Add(client, static_cast<double>(bytes));
    held_bytes_ += bytes;
  }
  return std::make_shared<Charge>(shared_from_this(), client, bytes);
}

int64_t Account::held_bytes() const {
  MutexLock lock(mutex_);
  return held_bytes_;
}

int64_t Account::held_bytes(const std::string& client) const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(shares_.Of(client));
}

void Account::Release(const std::string& client, int64_t bytes) {
  MutexLock lock(mutex_);
  shares_.Remove(client, static_cast<double>(bytes));
  held_bytes_ -= bytes;
}

}  // namespace attnd::server
