#include "server/region/keeper.h"

#include <memory>
#include <system_error>

#include "base/clock.h"

namespace attnd::server {

absl::StatusOr<std::shared_ptr<Keeper>> Keeper::Start() {
  std::shared_ptr<Keeper> keeper(new Keeper());
  try {
    keeper->thread_ = std::thread(&Keeper::Loop, keeper.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to keep regions with");
  }
  return keeper;
}

void Keeper::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (!stopped_) return Add(absl::InfinitePast(), std::move(task));
  }
  task();
}

void Keeper::PostAt(absl::Time due, Task task) {
  MutexLock lock(mutex_);
  if (!stops_) Add(due, std::move(task));
}

void Keeper::Add(absl::Time due, Task task) {
  tasks_.emplace(Order(due, ++last_), std::move(task));
  changed_.NotifyAll();
}

void Keeper::Stop() {
  {
    MutexLock lock(mutex_);
    stops_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Keeper::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    absl::Time due = absl::InfiniteFuture();
    if (!tasks_.empty()) due = tasks_.begin()->first.first;
    if (stops_ && due != absl::InfinitePast()) break;
    if (due > MonotonicNow()) {
      changed_.WaitUntil(lock, due);
      continue;
    }
    Task task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    lock.Unlock();
    task();
    task = nullptr;
    lock.Lock();
  }
  stopped_ = true;
  const absl::btree_map<Order, Task> dropped = std::move(tasks_);
  tasks_.clear();
  lock.Unlock();  // what is dropped may post as it goes
}

}  // namespace attnd::server
