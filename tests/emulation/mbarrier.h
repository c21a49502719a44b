#ifndef ATTND_TESTS_EMULATION_MBARRIER_H_
#define ATTND_TESTS_EMULATION_MBARRIER_H_

// Barriers in shared memory, whose phases end when all arrivals and all
// announced bytes are in.

#include <cstdint>

namespace attnd::emulation {

struct Block;

struct MBarrier {
  uint32_t arrivals = 0;  // that a phase takes
  uint32_t pending = 0;   // of them
  int64_t bytes = 0;      // announced that have not come
  uint32_t parity = 0;    // of the phase that is under way

  // If all is in, the next phase begins.
  void MaybeEnd();
};

// For the thread that runs. They fail the launch where there is no barrier, or
// where a phase takes no more arrivals, to which other blocks of the cluster
// may come.
void InitMBarrier(uint32_t address, uint32_t arrivals);
void ArriveAtMBarrier(uint32_t address, uint32_t bytes_announced);
bool TestMBarrier(uint32_t address, uint32_t parity);
void WaitForMBarrier(uint32_t address, uint32_t parity);

// Of a block; stays there as long as the block.
MBarrier& FindMBarrier(Block& block, uint32_t address);

// At a block's end: all that was announced must have come, and no more.
void CheckMBarriers(const Block& block);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_MBARRIER_H_
