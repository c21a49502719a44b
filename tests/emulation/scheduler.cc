#include "tests/emulation/scheduler.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/emulation/block_barrier.h"
#include "tests/emulation/device_variables.h"
#include "tests/emulation/launch.h"
#include "tests/emulation/report.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace attnd::emulation {
namespace {

constexpr unsigned kMostResident = 4;
constexpr size_t kMostSharedBytes = size_t{227} << 10;

class Scheduler {
 public:
  Scheduler(const Grid& grid, uint64_t seed,
            const std::function<void()>& kernel)
      : grid_(grid), kernel_(kernel), random_(seed) {}

  absl::Status Run();

  uint32_t Random(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  uint32_t Pause();
  void Progress() { progress_ = true; }
  void Report(std::string message);
  void Later(const Block& block, std::function<void()> copy);
  Thread& self() { return *self_; }

 private:
  // A copy that the engine has been told to make.
  struct Transfer {
    const Block* block;
    uint32_t rounds;  // until it is made
    std::function<void()> make;
  };

  void CheckGrid();
  void FindPlaces();
  void StartBlocks();
  static void Enter(void* thread);
  void End(Thread& thread);
  void Round();
  void MakeTransfers();
  void Delay(Warp& warp);
  void RunWarp(Warp& warp);
  bool RunThread(Thread& thread);
  void EndBlocks();
  std::vector<Cluster*> FindEnded() const;
  void CheckEnd(const Block& block);
  bool failed() const { return !error_.empty(); }

  const Grid& grid_;
  const std::function<void()>& kernel_;
  std::mt19937_64 random_;
  unsigned next_ = 0;  // block to start
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Cluster*> free_;
  std::vector<Block*> resident_;
  std::vector<Transfer> transfers_;
  Thread* self_ = nullptr;
  bool progress_ = false;
  // Nothing goes on: everything that was put off happens now.
  bool hurry_ = false;
  std::string error_;
};

Scheduler* scheduler = nullptr;

void Scheduler::Report(std::string message) {
  if (failed()) return;
  error_ = std::move(message);
  if (self_ != nullptr) {
    absl::StrAppend(&error_, " (block ", self_->block->index, ", thread ",
                    self_->index, ")");
  }
}

void Scheduler::Later(const Block& block, std::function<void()> copy) {
  transfers_.push_back({&block, Pause(), std::move(copy)});
  Progress();
}

// Rounds for which something is put off: mostly few or none, now and then as
// many as others need to come back to the same place.
uint32_t Scheduler::Pause() {
  constexpr uint32_t kShort = 12, kLong = 200;
  return Random(Random(8) == 0 ? kLong : kShort);
}

void Scheduler::CheckGrid() {
  if (grid_.blocks == 0 || grid_.threads == 0 || grid_.threads % kLanes != 0 ||
      grid_.threads > 1024 || grid_.shared_bytes > kMostSharedBytes ||
      grid_.cluster == 0 || grid_.blocks % grid_.cluster != 0) {
    Report(absl::StrCat("a launch of ", grid_.blocks, " blocks of ",
                        grid_.threads, " threads with ", grid_.shared_bytes,
                        " bytes of shared memory"));
  }
}

void Scheduler::FindPlaces() {
  // Static shared memory is there once.
  const unsigned resident =
      grid_.shared_bytes == 0 ? 1 : 1 + Random(kMostResident);
  for (unsigned i = 0; i < resident; ++i) {
    clusters_.push_back(std::make_unique<Cluster>());
    for (unsigned rank = 0; rank < grid_.cluster; ++rank) {
      Block& block = BlockAt(i * grid_.cluster + rank);
      block.cluster = clusters_.back().get();
      block.rank = rank;
      block.cluster->blocks.push_back(&block);
    }
    free_.push_back(clusters_.back().get());
  }
}

void Scheduler::StartBlocks() {
  while (next_ < grid_.blocks && !free_.empty()) {
    Cluster& cluster = *free_.back();
    free_.pop_back();
    cluster.arrived = 0;
    for (Block* block : cluster.blocks) {
      block->Start(next_++, grid_.threads, grid_.shared_bytes, &Enter);
      resident_.push_back(block);
    }
  }
}

void Scheduler::Enter(void* argument) {
  scheduler->kernel_();
  scheduler->End(*static_cast<Thread*>(argument));
  // Others may go on reading the parameters, which lie on this stack.
  while (true) Fiber::Suspend();
}

void Scheduler::End(Thread& thread) {
  if (!thread.stores.AllRead()) {
    Report("a thread ends with stores that still read shared memory");
  }
  thread.stores.WaitUntilWritten();
  thread.done = true;
  Progress();
  LeaveBlock(*thread.block);
  if (--thread.warp->live == 0 && !thread.warp->wgmma.empty()) {
    Report("a warp ends before its wgmma do");
  }
}

absl::Status Scheduler::Run() {
  // Rounds in which nothing happens, at a time: who polls needs two to see what
  // has happened.
  constexpr int kMostIdle = 16;
  constexpr int64_t kMostRounds = 3'000'000;
  CheckGrid();
  FindPlaces();
  gridDim = dim3(grid_.blocks);
  blockDim = dim3(grid_.threads);
  int idle = 0;
  int64_t rounds = 0;
  while (!failed() && (next_ < grid_.blocks || !resident_.empty())) {
    StartBlocks();
    progress_ = false;
    hurry_ = idle > 0;
    Round();
    EndBlocks();
    idle = progress_ ? 0 : idle + 1;
    if (failed()) break;
    if (idle > kMostIdle) error_ = "deadlock: nothing goes on";
    if (++rounds > kMostRounds) error_ = "the kernel does not end";
  }
  if (!failed()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(error_, "\n", Describe(resident_)));
}

void Scheduler::Round() {
  MakeTransfers();
  const size_t first = Random(static_cast<uint32_t>(resident_.size()));
  for (size_t n = 0; n < resident_.size(); ++n) {
    Block& block = *resident_[(first + n) % resident_.size()];
    const size_t warps = block.warps.size();
    const size_t first_warp = Random(static_cast<uint32_t>(warps));
    for (size_t w = 0; w < warps; ++w) {
      RunWarp(*block.warps[(first_warp + w) % warps]);
      if (failed()) return;
    }
  }
}

void Scheduler::MakeTransfers() {
  for (size_t i = 0; i < transfers_.size();) {
    if (!hurry_ && transfers_[i].rounds-- > 0) {
      ++i;
      continue;
    }
    const Transfer due = std::move(transfers_[i]);
    if (i + 1 < transfers_.size()) transfers_[i] = std::move(transfers_.back());
    transfers_.pop_back();
    due.make();
    Progress();
  }
}

// Has the warp stay behind for a while, now and then; or some of its lanes, but
// these not for long, as the device keeps lanes together where nothing parts
// them.
void Scheduler::Delay(Warp& warp) {
  constexpr uint32_t kSeldom = 16, kShort = 4, kAll = ~uint32_t{0};
  if (warp.pause > 0) {
    --warp.pause;
  } else if (Random(kSeldom) == 0) {
    const bool whole = Random(2) == 0;
    warp.pause = whole ? Pause() : Random(kShort);
    warp.lanes = whole ? 0 : Random(kAll);
  }
  if (hurry_ || warp.pause == 0) warp.lanes = kAll;
}

// Lanes in any order, so that what they tell each other without meeting shows;
// and for some time, so that warps get ahead of each other.
void Scheduler::RunWarp(Warp& warp) {
  Delay(warp);
  for (uint32_t turns = 1 + Random(4); turns > 0 && warp.live > 0; --turns) {
    const uint32_t first = Random(kLanes), step = 2 * Random(16) + 1;
    bool ran = false;
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint32_t lane = (first + i * step) % kLanes;
      if ((warp.lanes >> lane & 1) == 0) continue;
      ran |= RunThread(*warp.threads[lane]);
      if (failed()) return;
    }
    if (!ran) return;
  }
}

bool Scheduler::RunThread(Thread& thread) {
  if (thread.done || !thread.wait.IsOver()) return false;
  self_ = &thread;
  threadIdx = {thread.index, 0, 0};
  blockIdx = {thread.block->index, 0, 0};
  thread.fiber.Resume();
  self_ = nullptr;
  return true;
}

// Of a cluster all at once: the others may reach the memory of one that has
// ended no more, but threads may still be about it.
void Scheduler::EndBlocks() {
  for (Cluster* cluster : FindEnded()) {
    for (const Block* block : cluster->blocks) {
      CheckEnd(*block);
      std::erase(resident_, block);
    }
    free_.push_back(cluster);
  }
}

std::vector<Cluster*> Scheduler::FindEnded() const {
  std::vector<Cluster*> ended;
  for (const Block* block : resident_) {
    if (block->rank == 0 && block->cluster->live() == 0) {
      ended.push_back(block->cluster);
    }
  }
  return ended;
}

void Scheduler::CheckEnd(const Block& block) {
  for (const Transfer& transfer : transfers_) {
    if (transfer.block != &block) continue;
    Report(absl::StrCat("block ", block.index,
                        " ends before copies to its shared memory do"));
  }
  CheckMBarriers(block);
}

}  // namespace

Thread& Self() { return scheduler->self(); }
uint32_t Random(uint32_t n) { return scheduler->Random(n); }
void Progress() { scheduler->Progress(); }
void Report(std::string message) { scheduler->Report(std::move(message)); }
void Later(const Block& block, std::function<void()> copy) {
  scheduler->Later(block, std::move(copy));
}

// For good: the launch is over. Nothing on the stack is destroyed, so that the
// message must not stay there.
void Fail(std::string message) {
  scheduler->Report(std::move(message));
  while (true) Fiber::Suspend();
}

void Suspend(const Wait& wait) {
  Thread& self = Self();
  self.wait = wait;
  Fiber::Suspend();
  self.wait = {};
}

void Poll(const char* what) { Suspend({.what = what}); }

void MaybeYield() {
  constexpr uint32_t kSeldom = 16;
  if (Random(kSeldom) > 0) return;
  Suspend({.what = "its turn"});
  Progress();
}

absl::Status Launch(const Grid& grid, uint64_t seed,
                    const std::function<void()>& kernel) {
  Scheduler launch(grid, seed, kernel);
  scheduler = &launch;
  absl::Status status = launch.Run();
  scheduler = nullptr;
  return status;
}

}  // namespace attnd::emulation
