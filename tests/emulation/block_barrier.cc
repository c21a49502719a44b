#include "tests/emulation/block_barrier.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tests/emulation/scheduler.h"

namespace attnd::emulation {
namespace {

void MaybeEnd(BlockBarrier& barrier, int threads) {
  if (barrier.arrived < threads) return;
  barrier.arrived = barrier.threads = 0;
  barrier.last_any = barrier.any;
  barrier.any = 0;
  ++barrier.phase;
  Progress();
}

BlockBarrier& Arrive(int number, int threads) {
  if (number < 1 || number >= Block::kBarriers) {
    Fail(absl::StrCat("there is no named barrier ", number));
  }
  BlockBarrier& barrier = Self().block->barriers[number];
  if (barrier.threads != 0 && barrier.threads != threads) {
    Fail(absl::StrCat("barrier ", number, " of ", threads,
                      " threads, where others have come to it as one of ",
                      barrier.threads));
  }
  barrier.threads = threads;
  ++barrier.arrived;
  Progress();
  return barrier;
}

}  // namespace

bool SyncBlockOr(bool predicate) {
  Block& block = *Self().block;
  BlockBarrier& barrier = block.barriers[0];
  const uint64_t phase = barrier.phase;
  barrier.any |= predicate;
  ++barrier.arrived;
  Progress();
  MaybeEnd(barrier, static_cast<int>(block.live));
  WaitUntil("__syncthreads", 0, [&] { return barrier.phase != phase; });
  return barrier.last_any != 0;
}

void SyncBlock() { SyncBlockOr(false); }

void SyncNamed(int number, int threads) {
  BlockBarrier& barrier = Arrive(number, threads);
  const uint64_t phase = barrier.phase;
  MaybeEnd(barrier, threads);
  WaitUntil("bar.sync", static_cast<uint32_t>(number),
            [&] { return barrier.phase != phase; });
}

void ArriveNamed(int number, int threads) {
  MaybeEnd(Arrive(number, threads), threads);
  MaybeYield();
}

void LeaveBlock(Block& block) {
  --block.live;
  if (block.barriers[0].arrived > 0) {
    MaybeEnd(block.barriers[0], static_cast<int>(block.live));
  }
  block.cluster->MaybeEnd();
}

}  // namespace attnd::emulation
