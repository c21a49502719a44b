#ifndef ATTND_TESTS_KERNELS_TEAM_RING_TEAM_H_
#define ATTND_TESTS_KERNELS_TEAM_RING_TEAM_H_

// Teams of virtual devices, for plans that put results over several devices'
// columns together: those in which columns go round, and kv.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/plan_request.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr uint32_t kRingProblems = 12;
#else
inline constexpr uint32_t kRingProblems = 60;
#endif

struct RingParam {
  int devices;
  PlanKind plan;
};

inline std::vector<RingParam> RingParams() {
  std::vector<RingParam> params;
  for (const PlanKind plan :
       {PlanKind::kRing, PlanKind::kStriped, PlanKind::kZigzag}) {
    for (const int devices : {2, 3, 4, 7}) params.push_back({devices, plan});
  }
  return params;
}

inline std::vector<RingParam> KvParams() {
  std::vector<RingParam> params;
  for (const int devices : {2, 3, 4, 7}) {
    params.push_back({devices, PlanKind::kKv});
  }
  return params;
}

inline std::string NameOf(const ::testing::TestParamInfo<RingParam>& info) {
  return absl::StrCat(PlanName(info.param.plan), info.param.devices);
}

class RingTeam : public ::testing::TestWithParam<RingParam> {
 protected:
  static GroupOptions Options() {
    return {.deterministic = true, .plan = GetParam().plan};
  }
  // Fewer tokens than devices, and devices that have none.
  static ProblemOptions Short(ProblemOptions options) {
    options.max_q_len = options.max_kv_len = 9;
    return options;
  }
  // Other problems for each parameter.
  static uint32_t Seed(uint32_t i) {
    return i + 1000 * static_cast<uint32_t>(GetParam().devices) +
           20000 * static_cast<uint32_t>(GetParam().plan);
  }
  // Admission charges what a plan may take without making one.
  template <class Args>
  void ExpectCharged(const Args& args) {
    const plan::PlanRequest request = plan::Describe(
        absl::MakeConstSpan(&args, 1), Options(), *cpu_.members[0]);
    double bytes = 0;
    for (const plan::PlanCost::Device& device :
         plan::MakePlan(request, GetParam().devices).cost.devices) {
      bytes += static_cast<double>(device.memory_bytes);
    }
    EXPECT_LE(bytes,
              plan::MostBufferBytes(request.op, args.problem, GetParam().plan,
                                    GetParam().devices));
  }

  TeamOf cpu_{Cpus(GetParam().devices)};
  Device& team_ = *cpu_.team;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_TEAM_RING_TEAM_H_
