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
  Tasks tasks = {.turns = turns};
  RunUntil([] { return false; }, help, run, tasks);
}

bool ThreadPool::RunUntil(absl::FunctionRef<bool()> pause, bool help, Task run,
                          Tasks& tasks) {
  Job job{.run = run, .pause = pause, .tasks = tasks, .changed = {}};
  MutexLock lock(mutex_);
  OpenTurn(job);
  while (!job.turn_ended()) {
    if (help && job.has_task()) {
      const int64_t task = TakeTask(job);
      lock.Unlock();
      const bool pause_now = Run(job, task, threads());
      lock.Lock();
      EndTask(job, pause_now);
    } else {
      job.changed.Wait(lock);
    }
  }
  jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &job), jobs_.end());
  tasks = job.tasks;
  return job.all_taken();
}

void ThreadPool::OpenTurn(Job& job) {
  Tasks& tasks = job.tasks;
  while (tasks.next == tasks.open && !tasks.turns.empty()) {
    tasks.open += tasks.turns.front();
    tasks.turns.remove_prefix(1);
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
  return job.tasks.next++;
}

bool ThreadPool::Run(const Job& job, int64_t task, int worker) {
  if (worker < threads()) cores_.Compute(worker);
  job.run(task, worker);
  return job.pause();
}

void ThreadPool::EndTask(Job& job, bool pause) {
  --job.running;
  if (pause) job.paused = true;
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
    if (job.tasks.next + 1 < job.tasks.open) jobs_.push_back(&job);
    const int64_t task = TakeTask(job);
    lock.Unlock();
    const bool pause = Run(job, task, worker);
    lock.Lock();
    EndTask(job, pause);
  }
}

}  // namespace attnd::cpu
