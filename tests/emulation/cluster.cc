#include "tests/emulation/cluster.h"

#include "absl/strings/str_cat.h"
#include "tests/emulation/scheduler.h"

namespace attnd::emulation {
namespace {

// Above the addresses of a block: the rank of another's, and 1 more.
constexpr int kRankShift = 24;
constexpr uint32_t kOwn = (uint32_t{1} << kRankShift) - 1;

}  // namespace

unsigned Cluster::live() const {
  unsigned threads = 0;
  for (const Block* block : blocks) threads += block->live;
  return threads;
}

void Cluster::MaybeEnd() {
  if (arrived == 0 || arrived < live()) return;
  arrived = 0;
  ++phase;
  Progress();
}

uint32_t ClusterRank() { return Self().block->rank; }

void ArriveAtCluster() {
  Thread& self = Self();
  Cluster& cluster = *self.block->cluster;
  if (self.cluster_arrived) Fail("a second arrival at a cluster's barrier");
  self.cluster_arrived = true;
  self.cluster_phase = cluster.phase;
  ++cluster.arrived;
  Progress();
  cluster.MaybeEnd();
  MaybeYield();
}

void WaitForCluster() {
  Thread& self = Self();
  if (!self.cluster_arrived) Fail("a wait at a cluster's barrier, no arrival");
  const Cluster& cluster = *self.block->cluster;
  WaitUntil("barrier.cluster.wait", 0,
            [&] { return cluster.phase != self.cluster_phase; });
  self.cluster_arrived = false;
}

uint32_t ClusterAddress(uint32_t address, uint32_t rank) {
  return (address & kOwn) | (rank + 1) << kRankShift;
}

Block& BlockOf(uint32_t& address) {
  Block& own = *Self().block;
  const uint32_t rank = address >> kRankShift;
  address &= kOwn;
  if (rank == 0) return own;
  if (rank > own.cluster->blocks.size()) {
    Fail(absl::StrCat("a cluster has no block ", rank - 1));
  }
  Block& block = *own.cluster->blocks[rank - 1];
  if (block.live == 0) Fail("shared memory of a block that has ended");
  return block;
}

}  // namespace attnd::emulation
