#include "server/transfer/copiers.h"

#include <utility>

namespace attnd::server {

Copiers::Copiers(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

Copiers::~Copiers() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    added_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Copiers::Add(const std::string& client, absl::AnyInvocable<void()> copy) {
  {
    MutexLock lock(mutex_);
    auto& copies = copies_[client];
    if (copies.empty()) turns_.push_back(client);
    copies.push_back(std::move(copy));
  }
  added_.NotifyOne();
}

void Copiers::Loop() {
  MutexLock lock(mutex_);
  for (;;) {
    added_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !turns_.empty() || ends_;
    });
    if (turns_.empty()) return;
    std::string client = std::move(turns_.front());
    turns_.pop_front();
    const auto found = copies_.find(client);
    absl::AnyInvocable<void()> copy = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) {
      copies_.erase(found);
    } else {
      turns_.push_back(std::move(client));
    }
    lock.Unlock();
    std::move(copy)();
    copy = nullptr;
    lock.Lock();
  }
}

}  // namespace attnd::server
