#include "server/front/excess_memory.h"

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(ExcessMemory, NobodyLooksWhereNobodyCanTell) {
  EXPECT_FALSE(ExcessMemory(ServerOptions()));
}

TEST(ExcessMemory, IsWhatTheHeapHasBeyondAllShares) {
  for (const int64_t limit : {16 * kMiB, 256 * kMiB, 4096 * kMiB}) {
    ServerOptions options;
    options.memory_limit_bytes = limit;
    int64_t heap = 0;
    options.heap_in_use = [&] { return heap; };
    EXPECT_LT(ExcessMemory(options)(), -limit / 2) << limit;
    heap = limit + 64 * kMiB;
    EXPECT_GT(ExcessMemory(options)(), 0) << limit;
  }
}

TEST(ExcessMemory, TheHeapIsNotLookedAtForEveryCall) {
  ServerOptions options;
  int looks = 0;
  options.heap_in_use = [&] { return ++looks; };
  const auto excess = ExcessMemory(options);
  for (int i = 0; i < 1000; ++i) excess();
  EXPECT_LT(looks, 1000);
}

}  // namespace
}  // namespace attnd::server
