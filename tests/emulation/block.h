#ifndef ATTND_TESTS_EMULATION_BLOCK_H_
#define ATTND_TESTS_EMULATION_BLOCK_H_

// What the device knows of a block of threads that is resident.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/emulation/cluster.h"
#include "tests/emulation/cp_async.h"
#include "tests/emulation/fiber.h"
#include "tests/emulation/mbarrier.h"
#include "tests/emulation/shared_memory.h"
#include "tests/emulation/wgmma.h"

namespace attnd::emulation {

inline constexpr unsigned kLanes = 32;

struct Block;
struct Warp;

// What a thread waits for.
struct Wait {
  const char* what = nullptr;  // null: for nothing
  uint32_t where = 0;          // an address, or the number of a barrier
  // Whether it is over, given `state`; null: whenever the thread has its turn.
  bool (*over)(const void* state) = nullptr;
  const void* state = nullptr;

  bool IsOver() const { return over == nullptr || over(state); }
};

struct Thread {
  // Begins anew, as thread `number` of its block.
  void Start(unsigned number, Warp& of, void (*entry)(void* thread));

  Fiber fiber;
  unsigned index = 0;
  Block* block = nullptr;
  Warp* warp = nullptr;
  bool done = true;
  Wait wait;
  uint32_t fences = 0;  // for the async proxy, that it has made
  bool cluster_arrived = false;
  uint64_t cluster_phase = 0;  // in which it has
  CpAsyncGroups cp_async;
  StoreGroups stores;
};

// Where lanes of a warp meet for an instruction that they make together.
struct Meeting {
  const char* instruction = nullptr;
  unsigned arrived = 0;
  uint64_t number = 0;  // of those that are over
  void* arguments[kLanes] = {};
};

struct Warp {
  Block* block = nullptr;
  unsigned index = 0;
  unsigned live = 0;
  uint32_t pause = 0;  // rounds for which only these lanes go on:
  uint32_t lanes = 0;
  std::vector<Thread*> threads;
  Meeting meeting;
  WgmmaQueue wgmma;
};

// Barrier 0 of a block takes all threads that have not ended, the others as
// many as they are told.
struct BlockBarrier {
  int arrived = 0;
  int threads = 0;  // that the phase takes; 0: nobody has come
  uint64_t phase = 0;
  int any = 0, last_any = 0;  // of __syncthreads_or; and of the last phase
};

struct Block {
  static constexpr int kBarriers = 16;

  // Begins anew. Threads begin with entry(thread), which does not return.
  void Start(unsigned number, unsigned count, size_t shared_bytes,
             void (*entry)(void* thread));

  unsigned index = 0;
  unsigned live = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  SharedMemory memory;
  BlockBarrier barriers[kBarriers];
  std::map<uint32_t, MBarrier> mbarriers;  // by address
  Cluster* cluster = nullptr;
  unsigned rank = 0;  // in its cluster
};

// A place on the device for a block. They are kept from launch to launch, for
// their threads' stacks.
Block& BlockAt(size_t place);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_BLOCK_H_
