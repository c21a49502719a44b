#include "tests/emulation/mbarrier.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/emulation/scheduler.h"

namespace attnd::emulation {
namespace {

// What stands in shared memory for a barrier: that it was written over shows.
constexpr uint64_t kMark = 0x6d62617272696572;

}  // namespace

void MBarrier::MaybeEnd() {
  if (pending > 0 || bytes != 0) return;
  pending = arrivals;
  parity ^= 1;
  Progress();
}

void InitMBarrier(uint32_t address, uint32_t arrivals) {
  std::memcpy(SharedAt(address, 8), &kMark, sizeof(kMark));
  if (arrivals == 0) Fail("an mbarrier that takes no arrivals");
  const bool is_new =
      Self()
          .block->mbarriers.insert({address, {arrivals, arrivals, 0, 0}})
          .second;
  if (!is_new) {
    Fail(absl::StrCat("an mbarrier is already at ", absl::Hex(address)));
  }
}

MBarrier& FindMBarrier(Block& block, uint32_t address) {
  auto& all = block.mbarriers;
  const auto found = all.find(address);
  if (found == all.end()) {
    Fail(absl::StrCat("no mbarrier was made at ", absl::Hex(address)));
  }
  uint64_t mark = 0;
  std::memcpy(&mark, block.memory.At(address, 8), sizeof(mark));
  if (mark != kMark) {
    Fail(absl::StrCat("the mbarrier at ", absl::Hex(address),
                      " was written over"));
  }
  return found->second;
}

void ArriveAtMBarrier(uint32_t address, uint32_t bytes_announced) {
  Block& block = BlockOf(address);
  MBarrier& barrier = FindMBarrier(block, address);
  if (barrier.pending == 0) {
    Fail(absl::StrCat("more arrivals at the mbarrier at ", absl::Hex(address),
                      " than a phase takes"));
  }
  barrier.bytes += bytes_announced;
  --barrier.pending;
  Progress();
  barrier.MaybeEnd();
  MaybeYield();
}

bool TestMBarrier(uint32_t address, uint32_t parity) {
  if (parity > 1) Fail("a parity is 0 or 1");
  Poll("mbarrier.test_wait");
  return FindMBarrier(*Self().block, address).parity != parity;
}

void WaitForMBarrier(uint32_t address, uint32_t parity) {
  if (parity > 1) Fail("a parity is 0 or 1");
  const MBarrier& barrier = FindMBarrier(*Self().block, address);
  WaitUntil("mbarrier.try_wait", address,
            [&] { return barrier.parity != parity; });
}

void CheckMBarriers(const Block& block) {
  for (const auto& [address, barrier] : block.mbarriers) {
    if (barrier.bytes == 0) continue;
    Report(absl::StrCat("block ", block.index, " ends with ", barrier.bytes,
                        " bytes announced, but not copied, at the mbarrier at ",
                        absl::Hex(address)));
  }
}

}  // namespace attnd::emulation
