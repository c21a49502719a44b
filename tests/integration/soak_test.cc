// What thousands of mixed requests leave behind: no memory of requests, no
// thread, no descriptor, and every call counted. How much memory the server
// takes meanwhile is measured by tests/bench/service_bench.

#include "tests/integration/soak.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
// gRPC (1.51) leaks requests that are refused half sent: here in the client,
// while the server is a process of its own.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libgrpc.so\nleak:libgpr.so\n";
}
#endif

namespace attnd::testing {
namespace {

std::unique_ptr<Soak> Start(const std::string& binary) {
  auto soak = Soak::Start(binary);
  EXPECT_TRUE(soak.ok()) << soak.status();
  return *std::move(soak);
}

TEST(Soak, MixedRequestsLeaveNothingBehind) {
  const auto soak = Start(ATTND_BINARY);
  soak->WarmUp();
  soak->Run(1000);
  EXPECT_GT(soak->Seen(0), 0);
  EXPECT_EQ(soak->Contradiction(), "");
  const Usage rest = soak->Rest();
  std::cout << "at rest: " << Text(rest) << "\n";
  EXPECT_EQ(soak->AccountBytes(), 0);
  EXPECT_LE(rest.threads, soak->idle().threads);
  // gRPC's five pools have a bounded size.
  EXPECT_LE(rest.all_threads,
            soak->idle().all_threads +
                5 * 2 * static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_LE(rest.descriptors, soak->idle().descriptors);
  EXPECT_EQ(soak->Stop(), 0) << soak->log();
}

TEST(Soak, RequestsNearTheMemoryLimitLeaveNothingBehind) {
  const auto soak = Start(ATTND_BINARY);
  soak->RunLarge(64);
  soak->Rest();
  EXPECT_EQ(soak->AccountBytes(), 0);
  EXPECT_EQ(soak->Stop(), 0) << soak->log();
}

#if defined(__SANITIZE_ADDRESS__)
// Elsewhere it is the growth of memory that tells: see service_bench.
TEST(Soak, NoticesALeakOf8KiBARequest) {
  const auto soak = Start(ATTND_LEAKY_BINARY);
  soak->WarmUp();
  EXPECT_GT(soak->Stop(), 0);
  EXPECT_THAT(soak->log(), ::testing::HasSubstr("detected memory leaks"));
}
#endif

}  // namespace
}  // namespace attnd::testing
