#include "kernels/cpu/thread_pool.h"

#include <algorithm>

#include "kernels/give_way.h"

namespace attnd::cpu {

ThreadPool::ThreadPool(int threads) : cores_(threads) {
  threads_.reserve(threads);
  try {
    for (int worker = 0; worker < threads; ++worker) {
      threads_.emplace_back([this, worker] { Work(worker); });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::ParallelFor(absl::Span<const int64_t> turns, bool help,
                             Task run) {
  Job job{.run = run, .turns = turns, .changed = {}};
  std::unique_lock<std::mutex> lock(mutex_);
  OpenTurn(job);
  while (!job.ended()) {
    if (help && job.has_task()) {
      RunOne(job, threads(), lock);
    } else {
      job.changed.wait(lock);
    }
  }
  jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &job), jobs_.end());
}

void ThreadPool::OpenTurn(Job& job) {
  while (!job.has_task() && !job.turns.empty()) {
    job.open += job.turns.front();
    job.turns.remove_prefix(1);
  }
  if (!job.has_task()) return;
  // It is still there if its caller has taken the last tasks of a turn.
  if (std::find(jobs_.begin(), jobs_.end(), &job) == jobs_.end()) {
    jobs_.push_back(&job);
  }
  work_.notify_all();
}

void ThreadPool::RunOne(Job& job, int worker,
                        std::unique_lock<std::mutex>& lock) {
  const int64_t task = job.next++;
  ++job.running;
  lock.unlock();
  if (worker < threads()) cores_.Compute(worker);
  job.run(task, worker);
  lock.lock();
  --job.running;
  if (!job.turn_ended()) return;
  OpenTurn(job);
  // The caller may return, and the job be gone, once this is unlocked.
  job.changed.notify_one();
}

void ThreadPool::Work(int worker) {
  BecomeComputeThread();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (jobs_.empty()) {
      cores_.Rest(worker);
      work_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    }
    if (jobs_.empty()) return;
    Job& job = *jobs_.front();
    jobs_.pop_front();
    if (!job.has_task()) continue;  // its caller took the last one
    if (job.next + 1 < job.open) jobs_.push_back(&job);
    RunOne(job, worker, lock);
  }
}

}  // namespace attnd::cpu
