#ifndef ATTND_TESTS_EMULATION_CLUSTER_H_
#define ATTND_TESTS_EMULATION_CLUSTER_H_

// Blocks that are resident together and reach each other's shared memory.

#include <cstdint>
#include <vector>

namespace attnd::emulation {

struct Block;

struct Cluster {
  std::vector<Block*> blocks;
  unsigned arrived = 0;  // threads
  uint64_t phase = 0;

  unsigned live() const;  // threads
  // If all have arrived, the barrier's next phase begins.
  void MaybeEnd();
};

// For the thread that runs.
uint32_t ClusterRank();
void ArriveAtCluster();
void WaitForCluster();

// The address of what block `rank` has where this one has `address`.
uint32_t ClusterAddress(uint32_t address, uint32_t rank);
// The block of an address, of which its own address there is left; an address
// that is of no other block is this one's. Fails where that block has ended.
Block& BlockOf(uint32_t& address);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_CLUSTER_H_
