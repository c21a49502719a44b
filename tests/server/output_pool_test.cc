#include "server/work/output_pool.h"

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {
namespace {

constexpr int64_t kPage = 4096;

TEST(OutputPoolTest, CapacityIsWholePagesAndAtMostAQuarterMore) {
  EXPECT_EQ(OutputPool::Capacity(0), kPage);
  EXPECT_EQ(OutputPool::Capacity(1), kPage);
  EXPECT_EQ(OutputPool::Capacity(kPage), kPage);
  EXPECT_EQ(OutputPool::Capacity(kPage + 1), 2 * kPage);
  std::mt19937_64 random(7);
  int64_t previous = 0, last_bytes = 0;
  for (int i = 0; i < 10000; ++i) {
    const int64_t bytes = int64_t(random() >> (4 + random() % 59));
    const int64_t capacity = OutputPool::Capacity(bytes);
    EXPECT_GE(capacity, bytes);
    EXPECT_EQ(capacity % kPage, 0);
    EXPECT_LE(capacity, bytes + bytes / 4 + kPage);
    EXPECT_EQ(OutputPool::Capacity(capacity), capacity);
    if (bytes >= last_bytes) {
      EXPECT_GE(capacity, previous);
    }
    previous = capacity;
    last_bytes = bytes;
  }
}

TEST(OutputPoolTest, BuffersAreAlignedWritableAndApart) {
  auto memory = std::make_shared<CountingHostMemory>();
  auto pool = OutputPool::Create(memory, 1 << 20);
  std::vector<OutputBuffer> buffers;
  for (int64_t bytes : {0, 1, 4096, 4097, 100000}) {
    buffers.push_back(pool->Allocate(bytes, nullptr));
    ASSERT_TRUE(buffers.back());
    HostSpan span = buffers.back().span();
    ASSERT_EQ(span.size(), bytes);
    ASSERT_NE(span.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(span.data()) % kTensorAlignment, 0);
    std::memset(span.data(), static_cast<int>(buffers.size()), span.size());
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (std::byte byte : buffers[i].span()) {
      ASSERT_EQ(byte, std::byte(i + 1));
    }
  }
}

TEST(OutputPoolTest, ReusesMemoryOfTheSameSizeClass) {
  auto memory = std::make_shared<CountingHostMemory>();
  auto pool = OutputPool::Create(memory, 1 << 20);
  std::byte* first = pool->Allocate(5000, nullptr).span().data();
  EXPECT_EQ(pool->idle_bytes(), 2 * kPage);
  OutputBuffer again = pool->Allocate(8000, nullptr);
  EXPECT_EQ(again.span().data(), first);
  EXPECT_EQ(pool->idle_bytes(), 0);
  EXPECT_EQ(memory->allocations(), 1);
}

TEST(OutputPoolTest, KeepsNoMoreIdleMemoryThanItMay) {
  auto memory = std::make_shared<CountingHostMemory>();
  auto pool = OutputPool::Create(memory, 10 * kPage);
  {
    std::vector<OutputBuffer> buffers;
    for (int i = 0; i < 20; ++i) buffers.push_back(pool->Allocate(1, nullptr));
    EXPECT_EQ(memory->live_bytes(), 20 * kPage);
  }
  EXPECT_EQ(pool->idle_bytes(), 10 * kPage);
  EXPECT_EQ(memory->live_bytes(), 10 * kPage);
  // What is larger than the bound is not kept at all, nor anything else for it.
  { OutputBuffer large = pool->Allocate(11 * kPage, nullptr); }
  EXPECT_LE(memory->live_bytes(), 10 * kPage);
  pool->Trim(3 * kPage);
  EXPECT_EQ(memory->live_bytes(), pool->idle_bytes());
  EXPECT_LE(pool->idle_bytes(), 3 * kPage);
  pool->Trim(0);
  EXPECT_EQ(memory->live_bytes(), 0);
}

TEST(OutputPoolTest, WhatWasFreedLongestAgoGoesFirst) {
  auto memory = std::make_shared<CountingHostMemory>();
  auto pool = OutputPool::Create(memory, 4 * kPage);
  { OutputBuffer old = pool->Allocate(2 * kPage, nullptr); }
  { OutputBuffer newer = pool->Allocate(kPage, nullptr); }
  { OutputBuffer newest = pool->Allocate(3 * kPage, nullptr); }
  EXPECT_EQ(pool->idle_bytes(), 4 * kPage);
  const int64_t before = memory->allocations();
  OutputBuffer a = pool->Allocate(kPage, nullptr);
  OutputBuffer b = pool->Allocate(3 * kPage, nullptr);
  EXPECT_EQ(memory->allocations(), before);
  OutputBuffer c = pool->Allocate(2 * kPage, nullptr);
  EXPECT_EQ(memory->allocations(), before + 1);
}

TEST(OutputPoolTest, NoMemoryGivesAnEmptyBufferButIdleMemoryGoesFirst) {
  auto memory = std::make_shared<CountingHostMemory>();
  memory->set_limit_bytes(8 * kPage);
  auto pool = OutputPool::Create(memory, 1 << 20);
  { OutputBuffer small = pool->Allocate(kPage, nullptr); }
  OutputBuffer all = pool->Allocate(8 * kPage, nullptr);
  EXPECT_TRUE(all);
  OutputBuffer none = pool->Allocate(1, nullptr);
  EXPECT_FALSE(none);
  EXPECT_TRUE(none.span().empty());
}

TEST(OutputPoolTest, ABufferHoldsItsChargeAndPoolUntilItGoes) {
  auto memory = std::make_shared<CountingHostMemory>();
  auto account = Account::Create(1000);
  auto pool = OutputPool::Create(memory, 1 << 20);
  OutputBuffer a = pool->Allocate(10, account->TryCharge("a", 10));
  OutputBuffer b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): it says so
  pool.reset();
  b.span()[9] = std::byte{1};
  EXPECT_EQ(account->held_bytes(), 10);
  EXPECT_EQ(memory->live_bytes(), kPage);
  b = OutputBuffer();
  EXPECT_EQ(account->held_bytes(), 0);
  EXPECT_EQ(memory->live_bytes(), 0);
}

TEST(OutputPoolTest, ServesManyThreads) {
  auto memory = std::make_shared<CountingHostMemory>();
  auto pool = OutputPool::Create(memory, 64 * kPage);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::mt19937 random(t);
      std::vector<OutputBuffer> held(8);
      for (int i = 0; i < 5000; ++i) {
        OutputBuffer& slot = held[random() % held.size()];
        slot = pool->Allocate(random() % 40000, nullptr);
        if (!slot.span().empty()) slot.span()[0] = std::byte(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool->idle_bytes(), 64 * kPage);
  EXPECT_EQ(memory->live_bytes(), pool->idle_bytes());
}

}  // namespace
}  // namespace attnd::server
