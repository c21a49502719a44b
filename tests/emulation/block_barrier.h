#ifndef ATTND_TESTS_EMULATION_BLOCK_BARRIER_H_
#define ATTND_TESTS_EMULATION_BLOCK_BARRIER_H_

// Barriers of a block of threads: that of __syncthreads, and the named ones.

namespace attnd::emulation {

struct Block;

void SyncBlock();
// Whether any thread of the block has given `predicate`.
bool SyncBlockOr(bool predicate);

// Barrier 1 to 15, of `threads` threads, among them those that only arrive.
void SyncNamed(int barrier, int threads);
void ArriveNamed(int barrier, int threads);

// A thread has ended: nobody waits for it.
void LeaveBlock(Block& block);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_BLOCK_BARRIER_H_
