#include "kernels/cpu/thread_pool.h"

#include <algorithm>

#include "kernels/give_way.h"

namespace attnd {
ThreadPool::ThreadPool(int threads) {
  threads_.reserve(threads);
  for (int worker = 0; worker < threads; ++worker) {
    threads_.emplace_back([this, worker] { Work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::ParallelFor(int64_t tasks, bool help, Task run) {
  if (tasks <= 0) return;
  Job job{.run = run, .tasks = tasks, .done = {}};
  std::unique_lock<std::mutex> lock(mutex_);
  jobs_.push_back(&job);
  work_.notify_all();
  if (help) {
    while (job.next < job.tasks) RunOne(job, threads(), lock);
  }
  job.done.wait(lock,
                [&] { return job.next == job.tasks && job.running == 0; });
  jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &job), jobs_.end());
}

void ThreadPool::RunOne(Job& job, int worker,
                        std::unique_lock<std::mutex>& lock) {
  const int64_t task = job.next++;
  ++job.running;
  lock.unlock();
  job.run(task, worker);
  lock.lock();
  // The caller may return, and the job be gone, once this is unlocked.
  if (--job.running == 0 && job.next == job.tasks) job.done.notify_one();
}

void ThreadPool::Work(int worker) {
  BecomeComputeThread();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job& job = *jobs_.front();
    jobs_.pop_front();
    if (job.next == job.tasks) continue;  // its caller took the last one
    if (job.next + 1 < job.tasks) jobs_.push_back(&job);
    RunOne(job, worker, lock);
  }
}

}  // namespace attnd
