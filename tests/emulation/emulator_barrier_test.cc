// What the emulator finds where threads wait for each other: kernels that break
// one rule each.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tests/emulation/emulator_testing.h"

namespace attnd::emulation {
namespace {

// --- Warps.

TEST(EmulatorBarrierTest, LanesMeet) {
  int sum = 0;
  EXPECT_EQ(Wrong(kWarp, sum, 31 * 16,
                  [&] {
                    int x = static_cast<int>(threadIdx.x);
                    for (int step = 1; step < 32; step *= 2) {
                      x += __shfl_xor_sync(0xffffffff, x, step);
                    }
                    sum = x;
                  }),
            0);
}

TEST(EmulatorBarrierTest, FindsAWarpThatDiverges) {
  EXPECT_EQ(Failures(kWarp, "diverged",
                     [] {
                       if (threadIdx.x == 7) {
                         __syncwarp();
                       } else {
                         __any_sync(0xffffffff, true);
                       }
                     }),
            kSeeds);
}

TEST(EmulatorBarrierTest, FindsALaneThatIsMissing) {
  EXPECT_EQ(Failures(kWarp, "deadlock",
                     [] {
                       if (threadIdx.x != 7) __syncwarp();
                     }),
            kSeeds);
}

// Lane 0 tells the others by way of memory.
void Tell(bool synchronised, int& missed) {
  ATTND_DYNAMIC_SHARED(memory);
  int& told = *reinterpret_cast<int*>(memory);
  if (threadIdx.x == 0) missed = 0;
  __syncwarp();
  if (threadIdx.x == 0) told = 7;
  if (synchronised) __syncwarp();
  missed += told != 7;
}

TEST(EmulatorBarrierTest, FindsLanesThatReadBeforeABarrier) {
  int missed = 0;
  EXPECT_EQ(Wrong(kWarp, missed, 0, [&] { Tell(true, missed); }), 0);
  EXPECT_GT(Wrong(kWarp, missed, 0, [&] { Tell(false, missed); }), kSeeds / 2);
}

// --- Barriers.

TEST(EmulatorBarrierTest, FindsABarrierWithTooFewThreads) {
  EXPECT_EQ(Failures(kWarpgroup, "bar.sync at 0x3",
                     [] {
                       if (threadIdx.x < 96) ptx::NamedBarrierSync<128>(3);
                     }),
            kSeeds);
}

TEST(EmulatorBarrierTest, FindsABarrierOfTwoSizes) {
  EXPECT_EQ(Failures(kWarpgroup, "barrier 3 of 64 threads",
                     [] {
                       if (threadIdx.x < 64) ptx::NamedBarrierArrive<128>(3);
                       __syncthreads();
                       if (threadIdx.x >= 64) ptx::NamedBarrierSync<64>(3);
                     }),
            kSeeds);
}

TEST(EmulatorBarrierTest, ThreadsThatHaveEndedAreNotWaitedFor) {
  EXPECT_EQ(Failures(kWarpgroup, "",
                     [] {
                       if (threadIdx.x >= 32) __syncthreads();
                     }),
            0);
}

TEST(EmulatorBarrierTest, FindsTooFewArrivals) {
  EXPECT_EQ(Failures(kWarpgroup, "mbarrier.try_wait at 0x400",
                     [] {
                       MakeBarrier(3);
                       if (threadIdx.x % 64 == 0) ptx::BarrierArrive(kBarrier);
                       ptx::BarrierWait(kBarrier, 0);
                     }),
            kSeeds);
}

// A phase of arrivals, and waits for these parities.
void WaitForPhases(std::initializer_list<uint32_t> parities) {
  MakeBarrier(2);
  if (threadIdx.x % 64 == 0) ptx::BarrierArrive(kBarrier);
  for (uint32_t parity : parities) ptx::BarrierWait(kBarrier, parity);
}

// The phase before the first counts as over.
TEST(EmulatorBarrierTest, FindsAWaitForTheWrongPhase) {
  const auto failures = [](std::initializer_list<uint32_t> parities) {
    return Failures(kWarpgroup, "deadlock", [&] { WaitForPhases(parities); });
  };
  EXPECT_EQ(failures({0, 0}), 0);
  EXPECT_EQ(failures({0, 1}), kSeeds);
}

TEST(EmulatorBarrierTest, FindsMoreArrivalsThanAPhaseTakes) {
  EXPECT_EQ(Failures(kWarp, "more arrivals",
                     [] {
                       MakeBarrier(2);
                       if (threadIdx.x > 0) return;
                       ptx::BarrierArriveExpect(kBarrier, 16);
                       ptx::BarrierArrive(kBarrier);
                       ptx::BarrierArrive(kBarrier);
                     }),
            kSeeds);
}

TEST(EmulatorBarrierTest, FindsABarrierThatNobodyMade) {
  EXPECT_EQ(Failures(kWarp, "no mbarrier was made",
                     [] { ptx::BarrierArrive(kBarrier + 8); }),
            kSeeds);
}

TEST(EmulatorBarrierTest, FindsABarrierThatWasWrittenOver) {
  EXPECT_EQ(Failures(kWarp, "written over",
                     [] {
                       MakeBarrier(32);
                       cuda::ptx::StoreShared4(kBarrier, 0);
                       ptx::BarrierArrive(kBarrier);
                     }),
            kSeeds);
}

TEST(EmulatorBarrierTest, FindsThatNobodyIsEverToldAnything) {
  uint32_t flag = 0;
  EXPECT_EQ(Failures(kWarp, "ld.acquire",
                     [&] {
                       while (cuda::ptx::LoadAcquire(&flag) == 0) {
                       }
                     }),
            kSeeds);
}

// --- Clusters.

const Grid kCluster{
    .blocks = 4, .threads = 32, .shared_bytes = kBytes, .cluster = 2};

// Blocks of a cluster send each other their number.
void Exchange(std::vector<uint32_t>& got) {
  constexpr uint32_t kFrom = kMemory + 1024, kTo = kMemory + 2048;
  const uint32_t other = ptx::ClusterRank() ^ 1;
  MakeBarrier(1);
  if (threadIdx.x == 0) ptx::BarrierArriveExpect(kBarrier, 16);
  ptx::ClusterArrive();
  ptx::ClusterWait();  // all have their barriers
  if (threadIdx.x == 0) {
    ptx::StoreShared16(kFrom, {blockIdx.x, 0, 0, 0});
    ptx::FenceAsyncProxy();
    ptx::BulkSend(ptx::ClusterAddress(kTo, other), kFrom, 16,
                  ptx::ClusterAddress(kBarrier, other));
    ptx::BarrierWait(kBarrier, 0);
    got[blockIdx.x] = cuda::ptx::LoadShared16(kTo).x;
  }
  ptx::ClusterArrive();
  ptx::ClusterWait();  // nobody reads or writes what is here any more
}

TEST(EmulatorBarrierTest, BlocksOfAClusterReachEachOther) {
  std::vector<uint32_t> got(4);
  const std::vector<uint32_t> expected = {1, 0, 3, 2};
  EXPECT_EQ(Wrong(kCluster, got, expected, [&] { Exchange(got); }), 0);
}

TEST(EmulatorBarrierTest, FindsABlockThatLeavesItsCluster) {
  EXPECT_GT(
      Failures(kCluster, "has ended",
               [] {
                 MakeBarrier(1);
                 ptx::ClusterArrive();
                 ptx::ClusterWait();  // all have their barriers
                 if (ptx::ClusterRank() == 0) return;
                 for (int i = 0; i < 100; ++i) __syncwarp();
                 if (threadIdx.x > 0) return;
                 ptx::BarrierArriveCluster(ptx::ClusterAddress(kBarrier, 0));
               }),
      kSeeds / 2);
}

// --- Launches.

TEST(EmulatorBarrierTest, BlocksComeInAnyOrderThatTheSeedRepeats) {
  std::vector<unsigned> order;
  const Grid grid{.blocks = 8, .threads = 64, .shared_bytes = kBytes};
  const auto run = [&](uint64_t seed) {
    order.clear();
    EXPECT_TRUE(Launch(grid, seed, [&] {
                  __syncthreads();
                  if (threadIdx.x == 0) order.push_back(blockIdx.x);
                }).ok());
    return order;
  };
  int orders = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const std::vector<unsigned> first = run(seed);
    EXPECT_THAT(first, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_EQ(run(seed), first);
    orders += !std::is_sorted(first.begin(), first.end());
  }
  EXPECT_GT(orders, kSeeds / 2);
}

TEST(EmulatorBarrierTest, RefusesWhatNoDeviceLaunches) {
  for (const Grid& grid :
       {Grid{.blocks = 0}, Grid{.threads = 2048},
        Grid{.threads = 32, .shared_bytes = size_t{228} << 10}}) {
    EXPECT_EQ(Launch(grid, 0, [] {}).code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace attnd::emulation
