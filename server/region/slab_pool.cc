#include "server/region/slab_pool.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

// What the keeper fills at once, so that what is given back meanwhile does not
// wait for long.
constexpr int64_t kFilledAtOnce = int64_t{1} << 20;
// When trying again to take a slab may succeed: clients hold theirs for long.
constexpr absl::Duration kRetryTake = absl::Seconds(1);
// Filling memory is bound by the kernel's zeroing it.
constexpr unsigned kMostThreads = 16;

// Calls run(i) for every i below `count` on several threads, until one fails.
template <typename Run>
absl::Status RunInParallel(size_t count, Run run) {
  std::atomic<size_t> next = 0;
  Mutex mutex;
  absl::Status status;  // under mutex
  const auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) {
      const absl::Status one = run(i);
      if (one.ok()) continue;
      next = count;
      const MutexLock lock(mutex);
      status.Update(one);
    }
  };
  std::vector<std::thread> threads;
  const size_t most =
      std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  try {
    while (threads.size() + 1 < std::min(most, count)) {
      threads.emplace_back(loop);
    }
  } catch (const std::system_error&) {
    // Those that there are do it.
  }
  loop();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SlabPool>> SlabPool::Start(Parts parts) {
  std::shared_ptr<SlabPool> pool(new SlabPool(std::move(parts)));
  absl::Status status = pool->MakeAll();
  if (!status.ok()) return status;
  return pool;
}

absl::Status SlabPool::MakeAll() {
  struct Piece {
    Slab* slab;
    int piece;
  };
  std::vector<std::unique_ptr<Slab>> slabs;
  std::vector<Piece> pieces;
  for (const SlabClass& of : parts_.classes) {
    for (int64_t i = 0; i < of.count; ++i) {
      const std::vector<int>& nodes = parts_.numa_nodes;
      const int node = nodes.empty() ? -1 : nodes[slabs.size() % nodes.size()];
      auto slab = Slab::Create({of.bytes, node, parts_.pinners});
      if (!slab.ok()) return slab.status();
      for (int piece = 0; piece < (*slab)->pieces(); ++piece) {
        pieces.push_back({slab->get(), piece});
      }
      slabs.push_back(*std::move(slab));
    }
  }
  absl::Status status = RunInParallel(pieces.size(), [&](size_t i) {
    const auto [slab, piece] = pieces[i];
    absl::Status one =
        slab->Fill(slab->PieceOffset(piece), slab->PieceBytes(piece));
    if (one.ok()) one = slab->PinPiece(piece);
    return one;
  });
  if (!status.ok()) return status;
  for (auto& slab : slabs) PutBack(std::move(slab));
  MutexLock lock(mutex_);
  stats_.pinned_at_start = static_cast<int64_t>(pieces.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Slab>> SlabPool::Take(int64_t bytes) {
  MutexLock lock(mutex_);
  auto of = free_.lower_bound(bytes);
  if (of == free_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a region has at most ", largest_bytes(), " bytes"));
  }
  for (; of != free_.end(); ++of) {
    if (of->second.empty()) continue;
    std::unique_ptr<Slab> slab = std::move(of->second.back());
    of->second.pop_back();
    stats_.free_bytes -= slab->bytes();
    return slab;
  }
  return wire::WithRetryInfo(absl::ResourceExhaustedError(absl::StrCat(
                                 "no region of ", bytes, " bytes is free now")),
                             kRetryTake);
}

void SlabPool::PutBack(std::unique_ptr<Slab> slab) {
  MutexLock lock(mutex_);
  stats_.free_bytes += slab->bytes();
  free_[slab->bytes()].push_back(std::move(slab));
}

void SlabPool::GiveBack(std::unique_ptr<Slab> slab, Keeper::Task then) {
  parts_.keeper->Post(
      [this, slab = std::move(slab), then = std::move(then)]() mutable {
        slab->Empty();
        then();
        retired_.push_back(std::move(slab));
        ScheduleStep(MonotonicNow());
      });
}

int64_t SlabPool::largest_bytes() const {
  return parts_.classes.empty() ? 0 : parts_.classes.back().bytes;
}

SlabPoolStats SlabPool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

void SlabPool::ScheduleStep(absl::Time due) {
  if (step_is_due_) return;
  step_is_due_ = true;
  parts_.keeper->PostAt(due, [this] {
    step_is_due_ = false;
    Step();
  });
}

void SlabPool::Step() {
  absl::Duration pause;
  if (!retired_.empty()) {
    pause = RetireSome();
  } else if (!wanted_.empty()) {
    pause = MakeSome();
  }
  // After the last piece as well, so that the pause holds for the next slab.
  if (!retired_.empty() || !wanted_.empty() || pause > absl::ZeroDuration()) {
    ScheduleStep(MonotonicNow() + pause);
  }
}

absl::Duration SlabPool::PauseAfter(absl::Time start) const {
  return std::clamp(parts_.pause_factor * (MonotonicNow() - start),
                    parts_.least_pause, parts_.most_pause);
}

absl::Duration SlabPool::RetireSome() {
  const absl::Time start = MonotonicNow();
  if (retired_.front()->UnpinSome()) return PauseAfter(start);
  wanted_.push_back(retired_.front()->spec());
  retired_.pop_front();
  return absl::ZeroDuration();
}

absl::Duration SlabPool::MakeSome() {
  absl::Duration pause;
  const absl::Status status = TryMakeSome(pause);
  if (status.ok()) return pause;
  making_ = {};
  if (!said_why_ && parts_.log) {
    parts_.log(
        {LogLevel::kWarning,
         absl::StrCat("a region of ", wanted_.front().bytes,
                      " bytes cannot be made for now: ", status.message())});
  }
  said_why_ = true;
  // A smaller one may be possible.
  wanted_.push_back(std::move(wanted_.front()));
  wanted_.pop_front();
  return parts_.retry_pause;
}

absl::Status SlabPool::TryMakeSome(absl::Duration& pause) {
  if (making_.slab == nullptr) {
    auto slab = Slab::Create(wanted_.front());
    if (!slab.ok()) return slab.status();
    making_.slab = *std::move(slab);
  }
  Slab& slab = *making_.slab;
  const int64_t end =
      slab.PieceOffset(making_.piece) + slab.PieceBytes(making_.piece);
  if (making_.filled < end) {
    const int64_t bytes = std::min(kFilledAtOnce, end - making_.filled);
    absl::Status status = slab.Fill(making_.filled, bytes);
    if (status.ok()) making_.filled += bytes;
    return status;
  }
  const absl::Time start = MonotonicNow();
  absl::Status status = slab.PinPiece(making_.piece);
  if (!status.ok()) return status;
  pause = PauseAfter(start);
  const bool whole = ++making_.piece == slab.pieces();
  {
    MutexLock lock(mutex_);
    ++stats_.pinned_by_keeper;
    if (!whole) return absl::OkStatus();
    ++stats_.replaced;
  }
  PutBack(std::move(making_.slab));
  making_ = {};
  wanted_.pop_front();
  said_why_ = false;
  return absl::OkStatus();
}

}  // namespace attnd::server
