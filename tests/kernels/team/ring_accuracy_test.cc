// However many devices share a request, results are as near to float64 as one
// device's: what is merged and added to is f32, and rounded once.

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/team/team_fixture.h"
#include "tests/thinned.h"

namespace attnd {
namespace {

using testing::Cpus;
using testing::Device;
using testing::OneCpu;
using testing::OwnedTensor;
using testing::RandomProblem;
using testing::TeamOf;

// Of all problems' elements, by tensor: root mean square errors.
class Errors {
 public:
  void Add(const std::string& name, const OwnedTensor& got,
           absl::Span<const double> exact) {
    if (!got) return;
    const std::vector<double> values = got.Values();
    Sum& sum = sums_[name];
    for (size_t i = 0; i < exact.size(); ++i) {
      const double error = values[i] - exact[i];
      sum.squares += error * error;
      ++sum.count;
    }
  }
  // In parts of the other's.
  std::map<std::string, double> Over(const Errors& other) const {
    std::map<std::string, double> ratios;
    for (const auto& [name, sum] : sums_) {
      EXPECT_GT(sum.count, 10000) << name;
      ratios[name] = sum.Rms() / other.sums_.at(name).Rms();
    }
    return ratios;
  }

 private:
  struct Sum {
    double squares = 0;
    int64_t count = 0;

    double Rms() const {
      return std::sqrt(squares / static_cast<double>(count));
    }
  };
  std::map<std::string, Sum> sums_;
};

class RingAccuracyTest : public ::testing::TestWithParam<DType> {
 protected:
  // Lengths that no number of devices divides, and as many elements as it takes
  // for errors to be told apart from luck.
  RingAccuracyTest() {
    testing::ProblemOptions options = testing::ServedOptions();
    options.dtypes = {GetParam()};
    options.empty_sizes = options.lens = options.odd_scales = false;
    options.max_kv_len = 1200;
    options.head_dim = options.value_dim = 64;
    for (uint32_t seed = 0; problems_.size() < 6; ++seed) {
      auto problem = std::make_unique<RandomProblem>(seed, options);
      if (!problem->IsLarge()) continue;
      RandomProblem::BackwardOutputs none = problem->MakeBackwardOutputs();
      exact_.push_back({reference::OracleForward(problem->problem()),
                        reference::OracleBackward(problem->Backward(none))});
      problems_.push_back(std::move(problem));
    }
  }

  Errors ErrorsOf(Device& device, PlanKind plan) const {
    const GroupOptions options = {.deterministic = true, .plan = plan};
    Errors errors;
    for (size_t i = 0; i < problems_.size(); ++i) {
      const auto& problem = problems_[i];
      const auto& [forward, backward] = exact_[i];
      RandomProblem::ForwardOutputs out = problem->MakeForwardOutputs();
      EXPECT_TRUE(device.Forward(problem->Forward(out), options).ok());
      errors.Add("o", out.o, forward.o);
      RandomProblem::BackwardOutputs gradients = problem->MakeBackwardOutputs();
      EXPECT_TRUE(device.Backward(problem->Backward(gradients), options).ok());
      errors.Add("dq", gradients.dq, backward.dq);
      errors.Add("dk", gradients.dk[0], backward.dk[0]);
      errors.Add("dv", gradients.dv[0], backward.dv[0]);
    }
    return errors;
  }

  std::vector<std::unique_ptr<RandomProblem>> problems_;
  std::vector<std::pair<reference::ExactForward, reference::ExactBackward>>
      exact_;
};

TEST_P(RingAccuracyTest, IsOneDevicesOverAnyNumberOfThem) {
  Device one(OneCpu());
  const Errors alone = ErrorsOf(one, PlanKind::kOneDevice);
  for (int devices = 1; devices <= 8; devices += testing::kProblemStep) {
    TeamOf team(Cpus(devices));
    for (const PlanKind plan : {PlanKind::kRing, PlanKind::kStriped,
                                PlanKind::kZigzag, PlanKind::kKv}) {
      SCOPED_TRACE(absl::StrCat(PlanName(plan), " over ", devices));
      for (const auto& [name, ratio] : ErrorsOf(*team.team, plan).Over(alone)) {
        EXPECT_LE(ratio, 1.05) << name;
      }
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<DType>& info) {
  constexpr const char* kNames[] = {"F32", "F16", "BF16"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, RingAccuracyTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         NameOf);

}  // namespace
}  // namespace attnd
