#include "client/attnload/load.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/attnload/arrivals.h"
#include "client/attnload/placed_tensors.h"

namespace attnd::attnload {
namespace {

// Checks answers on a thread of its own, so that checking delays none.
class Checker {
 public:
  Checker(Workload& workload, Recorder& recorder, int rows, uint64_t seed)
      : workload_(workload), recorder_(recorder), rows_(rows), random_(seed) {
    thread_ = std::thread([this] { Loop(); });
  }
  // Checks what is left.
  ~Checker() {
    {
      MutexLock lock(mutex_);
      ending_ = true;
    }
    changed_.NotifyOne();
    thread_.join();
  }

  void Add(size_t shape, std::unique_ptr<Answer> answer) {
    {
      MutexLock lock(mutex_);
      waiting_.emplace_back(shape, std::move(answer));
    }
    changed_.NotifyOne();
  }
  // Whether it keeps up; else answers would pile up here.
  bool keeps_up() const {
    MutexLock lock(mutex_);
    return waiting_.size() < 4;
  }

 private:
  void Loop() {
    MutexLock lock(mutex_);
    while (true) {
      changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return ending_ || !waiting_.empty();
      });
      if (waiting_.empty()) return;
      auto [shape, answer] = std::move(waiting_.front());
      waiting_.pop_front();
      lock.Unlock();
      Payload& payload = workload_.payload(shape);
      recorder_.RecordCheck(CheckRows(payload, *answer, rows_, random_));
      payload.GiveBack(std::move(answer));
      lock.Lock();
    }
  }

  Workload& workload_;
  Recorder& recorder_;
  const int rows_;
  std::mt19937_64 random_;
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<std::pair<size_t, std::unique_ptr<Answer>>> waiting_
      ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class Load {
 public:
  Load(client::Client& client, Workload& workload, const LoadOptions& options)
      : client_(client),
        workload_(workload),
        options_(options),
        recorder_(workload.shapes().size()),
        random_(options.seed + 2),
        mix_(workload.shapes(), options.seed + 3),
        arrivals_(options.level, options.seed + 4),
        limit_(options.limit()),
        start_(Clock::now()),
        end_(start_ +
             absl::ToChronoNanoseconds(options.warm_up + options.duration)) {
    checker_.emplace(workload, recorder_, options.check_rows, options.seed + 1);
  }

  void Run();
  Results results() const { return recorder_.results(); }
  int64_t in_flight() const {
    MutexLock lock(mutex_);
    return in_flight_;
  }
  Clock::time_point start() const { return start_; }

 private:
  bool stopped() const {
    return options_.stop != nullptr &&
           options_.stop->load(std::memory_order_relaxed);
  }
  void SleepUntil(Clock::time_point time) const;
  // When the next request is due; waits until then, and for its turn.
  Clock::time_point WaitUntilDue();
  void Send(Clock::time_point due);

  client::Client& client_;
  Workload& workload_;
  const LoadOptions& options_;
  Recorder recorder_;
  std::optional<Checker> checker_;
  std::mt19937_64 random_;
  MixPicker mix_;
  PoissonArrivals arrivals_;
  const int64_t limit_;
  const Clock::time_point start_;
  const Clock::time_point end_;  // without a number of requests

  mutable Mutex mutex_;
  Condition ended_;
  int64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Looks now and then whether the load has been stopped.
void Load::SleepUntil(Clock::time_point time) const {
  constexpr auto kLook = std::chrono::milliseconds(100);
  while (!stopped() && Clock::now() < time) {
    std::this_thread::sleep_until(std::min(time, Clock::now() + kLook));
  }
}

Clock::time_point Load::WaitUntilDue() {
  Clock::time_point due;
  if (options_.open_loop) {
    due = start_ + absl::ToChronoNanoseconds(arrivals_.Next());
    // At a low rate that may be long after the end.
    SleepUntil(options_.requests > 0 ? due : std::min(due, end_));
  }
  MutexLock lock(mutex_);
  ended_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return in_flight_ < limit_;
  });
  ++in_flight_;
  recorder_.RecordInFlight(in_flight_);
  return options_.open_loop ? due : Clock::now();
}

void Load::Send(Clock::time_point due) {
  const size_t shape = mix_.Next();
  Payload& payload = workload_.payload(shape);
  Recorder::Outcome outcome;
  outcome.shape = shape;
  outcome.due = due;
  outcome.measured =
      due >= start_ + absl::ToChronoNanoseconds(options_.warm_up);
  outcome.bytes =
      payload.shape().input_bytes() + payload.shape().output_bytes();
  const bool check =
      std::bernoulli_distribution(options_.check_share)(random_) &&
      checker_->keeps_up();
  std::shared_ptr<Answer> answer = payload.TakeAnswer();
  if (check) Payload::Poison(*answer);
  PlacedTensors* const placed = options_.placed;
  char* const slot = placed != nullptr ? placed->TakeSlot() : nullptr;
  // What cannot be copied, this way or back, counts as a wrong answer.
  if (check && placed != nullptr) {
    placed->CopyIn(payload, *answer, slot).IgnoreError();
  }

  auto done = [this, outcome, check, &payload, answer, placed,
               slot](const absl::StatusOr<client::Report>& report) mutable {
    outcome.end = Clock::now();
    recorder_.Record(outcome, report);
    if (placed != nullptr) {
      if (check && report.ok()) {
        placed->CopyOut(payload, slot, *answer).IgnoreError();
      }
      placed->GiveBack(slot);
    }
    if (check && report.ok()) {
      checker_->Add(outcome.shape,
                    std::make_unique<Answer>(std::move(*answer)));
    } else {
      payload.GiveBack(std::make_unique<Answer>(std::move(*answer)));
    }
    // Notified under the lock: Run may return, and this end, right after.
    MutexLock lock(mutex_);
    --in_flight_;
    ended_.NotifyOne();
  };
  if (payload.shape().backward) {
    client::BackwardCall call = payload.Backward(*answer);
    if (placed != nullptr) placed->Point(shape, slot, call);
    client_.BackwardAsync(call, options_.call, done);
  } else {
    client::ForwardCall call = payload.Forward(*answer);
    if (placed != nullptr) placed->Point(shape, slot, call);
    client_.ForwardAsync(call, options_.call, done);
  }
}

void Load::Run() {
  // Wakes at the time due, not up to 50 us later.
  prctl(PR_SET_TIMERSLACK, 1);
  int64_t measured = 0;
  while (true) {
    const Clock::time_point due = WaitUntilDue();
    const bool over =
        stopped() ||
        (options_.requests > 0 ? measured >= options_.requests : due >= end_);
    if (over) {
      MutexLock lock(mutex_);
      --in_flight_;
      break;
    }
    if (due >= start_ + absl::ToChronoNanoseconds(options_.warm_up)) ++measured;
    recorder_.RecordSent();
    Send(due);
  }
  {
    MutexLock lock(mutex_);
    ended_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return in_flight_ == 0;
    });
  }
  checker_.reset();  // checks the rest
}

// Calls `progress` every second until it ends.
class Ticker {
 public:
  Ticker(const Load& load, const Progress& progress) {
    thread_ = std::thread([this, &load, &progress] {
      MutexLock lock(mutex_);
      absl::Time next = MonotonicNow();
      while (!changed_.WaitUntil(
          lock, next += absl::Seconds(1),
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_; })) {
        progress(load.results(), load.in_flight(),
                 absl::FromChrono(Clock::now() - load.start()));
      }
    });
  }
  ~Ticker() {
    {
      MutexLock lock(mutex_);
      ending_ = true;
    }
    changed_.NotifyOne();
    thread_.join();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

int64_t LoadOptions::limit() const {
  return open_loop ? max_in_flight : std::max<int64_t>(1, std::llround(level));
}

Workload::Workload(std::vector<Shape> shapes, uint64_t seed)
    : shapes_(std::move(shapes)) {
  for (const Shape& shape : shapes_) {
    payloads_.push_back(std::make_unique<Payload>(shape, seed++));
  }
}

Results RunLoad(client::Client& client, Workload& workload,
                const LoadOptions& options, const Progress& progress) {
  Load load(client, workload, options);
  {
    Ticker ticker(load, progress);
    load.Run();
  }
  return load.results();
}

}  // namespace attnd::attnload
