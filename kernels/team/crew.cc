#include "kernels/team/crew.h"

namespace attnd {

Crew::Crew(int size) {
  for (int i = 1; i < size; ++i) threads_.emplace_back([this, i] { Loop(i); });
}

Crew::~Crew() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    begun_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Crew::Run(int count, absl::FunctionRef<void(int)> work) {
  {
    MutexLock lock(mutex_);
    work_ = &work;
    count_ = count;
    running_ = count - 1;
    ++round_;
    if (count > 1) begun_.NotifyAll();
  }
  if (count > 0) work(0);
  MutexLock lock(mutex_);
  ended_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return running_ <= 0;
  });
  work_ = nullptr;
}

void Crew::Loop(int index) {
  MutexLock lock(mutex_);
  for (int seen = 0;;) {
    begun_.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || round_ != seen;
    });
    if (stopping_) return;
    seen = round_;
    if (index >= count_) continue;
    absl::FunctionRef<void(int)> work = *work_;
    lock.Unlock();
    work(index);
    lock.Lock();
    if (--running_ == 0) ended_.NotifyOne();
  }
}

}  // namespace attnd
