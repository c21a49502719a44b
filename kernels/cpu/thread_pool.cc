#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <utility>

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
  const auto whole = [run](int64_t task, int worker) {
    run(task, worker);
    return true;
  };
  RunUntil([] { return false; }, help, whole, tasks);
}

bool ThreadPool::RunUntil(absl::FunctionRef<bool()> pause, bool help, Part run,
                          Tasks& tasks) {
  Job job{.run = run, .pause = pause, .tasks = std::move(tasks), .changed = {}};
  MutexLock lock(mutex_);
  OpenTurn(job);
  while (!job.turn_ended()) {
    if (help && job.has_task()) {
      const int64_t task = TakeTask(job);
      lock.Unlock();
      const End end = Run(job, task, threads());
      lock.Lock();
      EndTask(job, task, end);
    } else {
      job.changed.Wait(lock);
    }
  }
  jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &job), jobs_.end());
  const bool ended = job.left() == 0 && job.tasks.turns.empty();
  tasks = std::move(job.tasks);
  return ended;
}

void ThreadPool::OpenTurn(Job& job) {
  Tasks& tasks = job.tasks;
  while (job.left() == 0 && !tasks.turns.empty()) {
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
  std::vector<int64_t>& begun = job.tasks.begun;
  if (begun.empty()) return job.tasks.next++;
  const int64_t task = begun.back();
  begun.pop_back();
  return task;
}

ThreadPool::End ThreadPool::Run(const Job& job, int64_t task, int worker) {
  if (worker < threads()) cores_.Compute(worker);
  if (!job.run(task, worker)) return End::kStopped;
  return job.pause() ? End::kPause : End::kGoOn;
}

void ThreadPool::EndTask(Job& job, int64_t task, End end) {
  --job.running;
  if (end != End::kGoOn) job.paused = true;
  if (end == End::kStopped) job.tasks.begun.push_back(task);
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
    if (job.left() > 1) jobs_.push_back(&job);
    const int64_t task = TakeTask(job);
    lock.Unlock();
    const End end = Run(job, task, worker);
    lock.Lock();
    EndTask(job, task, end);
  }
}

}  // namespace attnd::cpu
