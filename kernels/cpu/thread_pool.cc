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
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::ParallelFor(absl::Span<const int64_t> turns, bool help,
                             Task run) {
  Job job{.run = run, .turns = turns, .changed = {}};
  MutexLock lock(mutex_);
  OpenTurn(job);
  while (!job.ended()) {
    if (help && job.has_task()) {
      const int64_t task = TakeTask(job);
      lock.Unlock();
      Run(job, task, threads());
      lock.Lock();
      EndTask(job);
    } else {
      job.changed.Wait(lock);
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
  work_.NotifyAll();
}

int64_t ThreadPool::TakeTask(Job& job) {
  ++job.running;
  return job.next++;
}

void ThreadPool::Run(const Job& job, int64_t task, int worker) {
  if (worker < threads()) cores_.Compute(worker);
  job.run(task, worker);
}

void ThreadPool::EndTask(Job& job) {
  --job.running;
  if (!job.turn_ended()) return;
  OpenTurn(job);
  // The caller may return, and the job be gone, once this is unlocked.
  job.changed.NotifyOne();
}

void ThreadPool::Work(int worker) {
  BecomeComputeThread();
  MutexLock lock(mutex_);
  while (true) {
    if (jobs_.empty()) {
      cores_.Rest(worker);
      work_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !jobs_.empty();
      });
    }
    if (jobs_.empty()) return;
    Job& job = *jobs_.front();
    jobs_.pop_front();
    if (!job.has_task()) continue;  // its caller took the last one
    if (job.next + 1 < job.open) jobs_.push_back(&job);
    const int64_t task = TakeTask(job);
    lock.Unlock();
    Run(job, task, worker);
    lock.Lock();
    EndTask(job);
  }
}

}  // namespace attnd::cpu
