// What the emulator finds of what is asynchronous: kernels that break one rule
// each.

#include <bit>
#include <cstdint>

#include "tests/emulation/emulator_testing.h"

namespace attnd::emulation {
namespace {

using cuda::ptx::CpAsync16;
using cuda::ptx::CpAsyncCommit;
using cuda::ptx::CpAsyncWait;
using cuda::ptx::LoadShared16;

// --- Copies.

alignas(16) const float kOnes[4] = {1, 1, 1, 1};
constexpr uint32_t kTo = kMemory + 1024;

float FirstOf(uint32_t address) {
  return std::bit_cast<float>(LoadShared16(address).x);
}

// A copy by the engine, for which `announced` bytes are waited.
void Copy(uint32_t announced, bool wait, float& got) {
  MakeBarrier(1);
  if (threadIdx.x == 0) {
    ptx::BarrierArriveExpect(kBarrier, announced);
    ptx::BulkLoad(kTo, kOnes, 16, kBarrier);
    if (wait) ptx::BarrierWait(kBarrier, 0);
    got = FirstOf(kTo);
    if (!wait) ptx::BarrierWait(kBarrier, 0);
  }
}

TEST(EmulatorAsyncTest, CopiesBytesInARow) {
  float got = 0;
  EXPECT_EQ(Wrong(kWarp, got, 1.0f, [&] { Copy(16, true, got); }), 0);
}

TEST(EmulatorAsyncTest, FindsAReadBeforeACopyIsOver) {
  float got = 0;
  EXPECT_EQ(Wrong(kWarp, got, 1.0f, [&] { Copy(16, false, got); }), kSeeds);
}

TEST(EmulatorAsyncTest, FindsAWrongCountOfBytes) {
  float got = 0;
  for (uint32_t announced : {8, 32}) {
    EXPECT_EQ(Failures(kWarp, "deadlock", [&] { Copy(announced, true, got); }),
              kSeeds);
  }
}

TEST(EmulatorAsyncTest, FindsBytesThatNobodyHasCopied) {
  EXPECT_EQ(Failures(kWarp, "16 bytes announced",
                     [] {
                       MakeBarrier(1);
                       if (threadIdx.x == 0) {
                         ptx::BarrierArriveExpect(kBarrier, 16);
                       }
                     }),
            kSeeds);
}

TEST(EmulatorAsyncTest, FindsABlockThatEndsBeforeItsCopies) {
  EXPECT_GT(Failures(kWarp, "before copies",
                     [] {
                       MakeBarrier(1);
                       if (threadIdx.x > 0) return;
                       ptx::BarrierArriveExpect(kBarrier, 16);
                       ptx::BulkLoad(kTo, kOnes, 16, kBarrier);
                     }),
            kSeeds / 2);
}

TEST(EmulatorAsyncTest, FindsAReadBeforeAGroupOfCopies) {
  float got = 0;
  const auto copy = [&](auto wait) {
    CpAsync16(kTo, kOnes);
    CpAsyncCommit();
    wait();
    if (threadIdx.x == 0) got = FirstOf(kTo);
  };
  EXPECT_EQ(Wrong(kWarp, got, 1.0f, [&] { copy([] { CpAsyncWait<0>(); }); }),
            0);
  EXPECT_GT(Wrong(kWarp, got, 1.0f, [&] { copy([] { CpAsyncWait<1>(); }); }),
            kSeeds / 4);
}

TEST(EmulatorAsyncTest, FindsWhatIsNotSharedMemory) {
  EXPECT_EQ(Failures(kWarp, "no shared memory at 4400",
                     [] { LoadShared16(kMemory + kBytes); }),
            kSeeds);
  EXPECT_EQ(Failures(kWarp, "not a multiple of 16",
                     [] { LoadShared16(kMemory + 8); }),
            kSeeds);
  EXPECT_EQ(Failures(kWarp, "not shared", [] { ptx::SharedAddress(kOnes); }),
            kSeeds);
}

// --- wgmma, of tiles of ones.

struct Steps {
  bool proxy_fence = true, fence = true, wait = true, wait_at_end = true;
};
void Multiply(const Steps& steps, float& got) {
  constexpr uint32_t kOne = 0x3f803f80;  // two of them in bf16
  float d[32] = {};
  for (uint32_t i = threadIdx.x; i < 64 * 8; i += 128) {
    ptx::StoreShared16(kMemory + 16 * i, {kOne, kOne, kOne, kOne});
  }
  if (steps.proxy_fence) ptx::FenceAsyncProxy();
  __syncthreads();
  const uint64_t tile = ptx::Descriptor(kMemory, 16);
  if (steps.fence) ptx::WgmmaFence();
  ptx::Wgmma<__nv_bfloat16, 64>::Nt(d, tile, tile, true);
  ptx::WgmmaCommit();
  if (steps.wait) ptx::WgmmaWait<0>();
  if (threadIdx.x == 77) got = d[31];
  if (steps.wait_at_end) ptx::WgmmaWait<0>();
}

TEST(EmulatorAsyncTest, Multiplies) {
  float got = 0;
  EXPECT_EQ(Wrong(kWarpgroup, got, 16.0f, [&] { Multiply({}, got); }), 0);
}

TEST(EmulatorAsyncTest, FindsAReadBeforeAWait) {
  float got = 0;
  EXPECT_GT(
      Wrong(kWarpgroup, got, 16.0f, [&] { Multiply({.wait = false}, got); }),
      kSeeds / 4);
}

TEST(EmulatorAsyncTest, FindsAWarpThatEndsBeforeItsWgmma) {
  float got = 0;
  EXPECT_GT(
      Failures(kWarpgroup, "before its wgmma",
               [&] { Multiply({.wait = false, .wait_at_end = false}, got); }),
      kSeeds / 4);
}

TEST(EmulatorAsyncTest, FindsMissingFences) {
  float got = 0;
  EXPECT_EQ(Failures(kWarpgroup, "without wgmma.fence",
                     [&] { Multiply({.fence = false}, got); }),
            kSeeds);
  EXPECT_EQ(Failures(kWarpgroup, "without a proxy fence",
                     [&] { Multiply({.proxy_fence = false}, got); }),
            kSeeds);
}

}  // namespace
}  // namespace attnd::emulation
