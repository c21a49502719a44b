#include "kernels/cpu/core_spread.h"

#include <vector>

#include "gtest/gtest.h"

#ifdef __linux__
#include <sched.h>

namespace attnd::cpu {
namespace {

cpu_set_t Allowed() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return set;
}

class CoreSpreadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CPU_COUNT(&allowed_) < 2) GTEST_SKIP() << "SKIPPED: a single core";
  }
  const cpu_set_t allowed_ = Allowed();
};

// How often of 100 times worker `second` leaves the core where worker `first`
// computes.
int TimesMoved(int first, int second, bool rests) {
  int moved = 0;
  for (int i = 0; i < 100; ++i) {
    CoreSpread spread(2);
    spread.Compute(first);
    if (rests) spread.Rest(first);
    const int core = sched_getcpu();
    spread.Compute(second);
    if (sched_getcpu() != core) ++moved;
  }
  return moved;
}

// The system may move a thread at any time, so a few may go wrong.
TEST_F(CoreSpreadTest, OfTwoOnACoreTheSecondMoves) {
  EXPECT_GE(TimesMoved(0, 1, false), 80);
  EXPECT_LE(TimesMoved(1, 0, false), 20);
}

TEST_F(CoreSpreadTest, TheCoreOfOneAtRestIsFree) {
  EXPECT_LE(TimesMoved(0, 1, true), 20);
}

void StayOn(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  ASSERT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
}

// Where the second one computed before is the only core that is free.
TEST_F(CoreSpreadTest, OneThatTheSystemMovedMovesBack) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed_)) cores.push_back(core);
  }
  int moved = 0;
  for (int i = 0; i < 100; ++i) {
    const int workers = static_cast<int>(cores.size());
    CoreSpread spread(workers);
    for (int worker = 0; worker < workers; ++worker) {
      StayOn(cores[worker]);
      spread.Compute(worker);
    }
    StayOn(cores[0]);
    sched_setaffinity(0, sizeof(allowed_), &allowed_);
    spread.Compute(workers - 1);
    if (sched_getcpu() == cores[workers - 1]) ++moved;
  }
  EXPECT_GE(moved, 80);
}

TEST_F(CoreSpreadTest, ChangesNoAffinity) {
  TimesMoved(0, 1, false);
  const cpu_set_t after = Allowed();
  EXPECT_TRUE(CPU_EQUAL(&after, &allowed_));
}

TEST_F(CoreSpreadTest, MoreWorkersThanCoresChangeNoAffinity) {
  CoreSpread spread(CPU_COUNT(&allowed_) + 2);
  for (int worker = 0; worker < CPU_COUNT(&allowed_) + 2; ++worker) {
    spread.Compute(worker);
  }
  const cpu_set_t after = Allowed();
  EXPECT_TRUE(CPU_EQUAL(&after, &allowed_));
}

}  // namespace
}  // namespace attnd::cpu
#endif  // __linux__
