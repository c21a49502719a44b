#include "tests/emulation/block.h"

namespace attnd::emulation {

void Thread::Start(unsigned number, Warp& of, void (*entry)(void*)) {
  index = number;
  block = of.block;
  warp = &of;
  done = false;
  wait = {};
  fences = 0;
  cluster_arrived = false;
  cp_async = {};
  stores = {};
  fiber.Start(entry, this);
}

void Block::Start(unsigned number, unsigned count, size_t shared_bytes,
                  void (*entry)(void*)) {
  index = number;
  live = count;
  memory.Reset(shared_bytes);
  mbarriers.clear();
  for (BlockBarrier& barrier : barriers) barrier = {};
  while (threads.size() < count) threads.push_back(std::make_unique<Thread>());
  warps.clear();
  for (unsigned i = 0; i < count; ++i) {
    if (i % kLanes == 0) {
      warps.push_back(std::make_unique<Warp>());
      warps.back()->block = this;
      warps.back()->index = i / kLanes;
    }
    Warp& warp = *warps.back();
    warp.threads.push_back(threads[i].get());
    ++warp.live;
    threads[i]->Start(i, warp, entry);
  }
}

Block& BlockAt(size_t place) {
  static auto* const blocks = new std::vector<std::unique_ptr<Block>>;
  while (blocks->size() <= place) blocks->push_back(std::make_unique<Block>());
  return *(*blocks)[place];
}

}  // namespace attnd::emulation
