#ifndef ATTND_TESTS_KERNELS_TEAM_BREAKABLE_TEAM_H_
#define ATTND_TESTS_KERNELS_TEAM_BREAKABLE_TEAM_H_

// Teams of devices that break when they are told to, of any kind.

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/faulty_member.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd::testing {

using Backends = std::vector<std::unique_ptr<Backend>>;

class BreakableTeam {
 public:
  explicit BreakableTeam(Backends devices) {
    Backends all;
    all.reserve(devices.size());
    for (std::unique_ptr<Backend>& device : devices) {
      const int index = static_cast<int>(all.size());
      auto member = std::make_unique<FaultyBackend>(std::move(device), index);
      members_.push_back(member.get());
      all.push_back(std::move(member));
    }
    team_ = std::make_unique<TeamOf>(std::move(all));
  }

  int size() const { return static_cast<int>(members_.size()); }
  FaultyBackend& member(int i) { return *members_[i]; }
  Device& device() { return *team_->team; }
  void ExpectNothingLeft() const {
    for (FaultyBackend* member : members_) EXPECT_EQ(member->live_bytes(), 0);
  }

 private:
  std::vector<FaultyBackend*> members_;
  std::unique_ptr<TeamOf> team_;
};

inline Bits BitsOf(Op op, Device& device, const RandomProblem& problem,
                   const GroupOptions& options) {
  return op == Op::kForward ? ForwardBits(device, problem, options)
                            : BackwardBits(device, problem, options);
}

// In each run one member of a new team breaks at some call, by turns in
// forward and backward of each of `plans`. The others must give the bits that
// they have without it, then and in the next request, and nothing may be left.
// `make` makes the first of all devices, `sizes` are the teams'.
inline void ExpectOthersCompute(uint32_t runs, std::vector<int> sizes,
                                const std::function<Backends(int)>& make,
                                const std::vector<PlanKind>& plans = {
                                    PlanKind::kHeads, PlanKind::kGather}) {
  std::mt19937 random(7);
  uint32_t failed = 0;
  for (uint32_t run = 0; run < runs; ++run) {
    const int size = sizes[run % sizes.size()];
    const Op op = run % 2 == 0 ? Op::kForward : Op::kBackward;
    const GroupOptions options = {.deterministic = true,
                                  .plan = plans[run / 2 % plans.size()]};
    const RandomProblem problem(run, ServedOptions());
    TeamOf fewer(make(size - 1));
    const Bits expected = BitsOf(op, *fewer.team, problem, options);
    BreakableTeam team(make(size));
    const auto bits = [&] {
      return BitsOf(op, team.device(), problem, options);
    };
    // The first request makes calls that later ones do not, such as for memory
    // that is kept.
    bits();
    FaultyBackend& broken = team.member(static_cast<int>(random() % size));
    const int before = broken.faults().calls();
    bits();
    const int calls = broken.faults().calls() - before;
    if (calls == 0) continue;
    broken.faults().FailAfter(static_cast<int>(random() % calls),
                              absl::InternalError("out of order"));
    ASSERT_EQ(bits(), expected) << problem.Describe();
    EXPECT_TRUE(broken.faults().has_failed());
    EXPECT_EQ(team.device().report.devices.size(), size - 1);
    EXPECT_THAT(team.device().report.why, ::testing::HasSubstr("out of order"));
    team.ExpectNothingLeft();
    // The next one does without it from the start.
    ASSERT_EQ(bits(), expected) << problem.Describe();
    team.ExpectNothingLeft();
    ++failed;
  }
  EXPECT_GT(failed, runs / 2);
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_TEAM_BREAKABLE_TEAM_H_
