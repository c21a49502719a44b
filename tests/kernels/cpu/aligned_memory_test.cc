#include "kernels/cpu/aligned_memory.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"

namespace attnd::cpu {
namespace {

bool Aligned(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kTensorAlignment == 0;
}

TEST(AlignedMemoryTest, IsAlignedAndWritableAtAnySize) {
  for (int64_t bytes : {1, 255, 256, 257, 100'000, 262'144, 3'000'001}) {
    std::byte* memory = AllocateAligned(bytes);
    ASSERT_NE(memory, nullptr) << bytes;
    EXPECT_TRUE(Aligned(memory)) << bytes;
    std::memset(memory, 1, bytes);
    FreeAligned(memory, bytes);
  }
}

TEST(AlignedMemoryTest, RefusesWhatCannotBe) {
  EXPECT_EQ(AllocateAligned(0), nullptr);
  EXPECT_EQ(AllocateAligned(-1), nullptr);
  EXPECT_EQ(AllocateAligned(std::numeric_limits<int64_t>::max()), nullptr);
  EXPECT_EQ(AllocateAligned(int64_t{1} << 60), nullptr);
}

TEST(ArenaTest, GivesDisjointMemoryUntilReset) {
  Arena arena(1 << 20);
  std::byte* a = arena.Allocate(1000);
  std::byte* b = arena.Allocate(500'000);
  std::byte* c = arena.Allocate(1000);
  ASSERT_TRUE(a && b && c);
  EXPECT_TRUE(Aligned(a) && Aligned(b) && Aligned(c));
  std::memset(a, 1, 1000);
  std::memset(b, 2, 500'000);
  std::memset(c, 3, 1000);
  EXPECT_EQ(a[999], std::byte{1});
  EXPECT_EQ(b[499'999], std::byte{2});
}

TEST(ArenaTest, KeepsMemoryBetweenBatchesUpToItsBound) {
  Arena arena(1 << 20);
  std::byte* first = arena.Allocate(600'000);
  arena.Reset();
  EXPECT_EQ(arena.Allocate(600'000), first);
  EXPECT_NE(arena.Allocate(5'000'000), nullptr);
  EXPECT_GE(arena.held_bytes(), 5'600'000);
  arena.Reset();
  EXPECT_LE(arena.held_bytes(), 1 << 20);
  EXPECT_GT(arena.held_bytes(), 0);
}

TEST(ArenaTest, RefusesWhatCannotBe) {
  Arena arena(0);
  EXPECT_EQ(arena.Allocate(-1), nullptr);
  EXPECT_EQ(arena.Allocate(std::numeric_limits<int64_t>::max()), nullptr);
  EXPECT_NE(arena.Allocate(0), nullptr);
}

}  // namespace
}  // namespace attnd::cpu
