#include "kernels/team/team.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/host_buffer.h"
#include "kernels/plan/choose.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/plan_request.h"
#include "kernels/team/calibration.h"
#include "kernels/team/team_stream.h"

namespace attnd {
namespace {

// A plan has steps for each sequence, of which a small message can ask for
// thousands of millions.
constexpr int64_t kMostSequences = int64_t{1} << 16;

bool HasFewSequences(const Problem* problem) {
  return problem->batch <= kMostSequences;
}

class Team : public Backend {
 public:
  Team(std::vector<Backend*> members, const DeviceRates& rates)
      : members_(std::move(members), rates) {
    const DeviceInfo& first = members_.at(0).device();
    device_.kind = "team";
    device_.name = absl::StrCat(members_.size(), " x ", first.name);
    device_.members = members_.size();
    device_.shares_host_memory = true;
    for (int i = 0; i < members_.size(); ++i) {
      device_.memory_bytes += members_.at(i).device().memory_bytes;
    }
  }

  const DeviceInfo& device() const override { return device_; }
  std::shared_ptr<HostMemory> host_memory() override {
    return members_.at(0).host_memory();
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    try {
      return TeamStream::Create(members_);
    } catch (const std::system_error&) {
      return absl::ResourceExhaustedError("cannot start a team's threads");
    }
  }

  absl::StatusOr<std::shared_ptr<DeviceBuffer>> NewBuffer(
      int64_t bytes) override {
    return NewHostBuffer(host_memory(), bytes);
  }

  // Whoever lends memory pins it for the members' kind of device.
  absl::Status Pin(HostSpan) override { return absl::OkStatus(); }
  void Unpin(HostSpan) override {}
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Import(int, int64_t) override {
    return absl::UnimplementedError("a team has no memory of its own");
  }

  absl::Status Supports(Op op, const Problem& problem,
                        const GroupOptions& options) const override {
    if (options.algorithm != Algorithm::kAuto) {
      return absl::UnimplementedError(
          "several devices together run the fastest kernels alone");
    }
    if (options.plan == PlanKind::kOneDevice) {
      return absl::UnimplementedError("one device was asked for");
    }
    if (!HasFewSequences(&problem)) {
      return absl::UnimplementedError(
          absl::StrCat("several devices together take at most ", kMostSequences,
                       " sequences"));
    }
    return members_.at(0).Supports(op, problem, options);
  }

  KernelInfo Kernel(Op op, const Problem& problem,
                    const GroupOptions& options) const override {
    return members_.at(0).Kernel(op, problem, options);
  }

  // What all members' buffers take beside what the host has, and the kernels.
  int64_t ScratchBytes(Op op, const Problem& problem,
                       const GroupOptions& options) const override {
    // More than any devices have.
    constexpr double kMost = int64_t{1} << 60;
    const double kernels =
        static_cast<double>(members_.size()) *
        static_cast<double>(members_.at(0).ScratchBytes(op, problem, options));
    return static_cast<int64_t>(std::min(
        kMost, kernels + plan::MostBufferBytes(op, problem, options.plan,
                                               members_.size())));
  }

  double CostFlops(Op op, const Problem& problem,
                   const GroupOptions& options) const override {
    return members_.at(0).CostFlops(op, problem, options);
  }

  // A request of which one device takes less than a millisecond is not looked
  // at.
  std::optional<PlanChoice> ChoosePlan(
      Op op, double flops, const GroupOptions& options,
      absl::Span<const Problem* const> problems) const override {
    constexpr double kLeastSeconds = 1e-3;
    const DeviceRates& rates = members_.rates();
    const auto& kernel = op == Op::kForward ? rates.forward : rates.backward;
    if (flops < kLeastSeconds * kernel.flops / 2 ||
        problems.size() > kMostSequences ||
        !std::all_of(problems.begin(), problems.end(), HasFewSequences)) {
      return std::nullopt;
    }
    plan::PlanRequest request =
        plan::DescribeShapes(op, problems, options, members_.at(0));
    request.rates = rates;
    return plan::ChooseShared(request, members_.size());
  }

  CutUnit Cut(const Problem& sequence,
              const GroupOptions& options) const override {
    return members_.at(0).Cut(sequence, options);
  }

 private:
  Members members_;
  DeviceInfo device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateTeam(
    std::vector<Backend*> members) {
  if (members.empty()) {
    return absl::InvalidArgumentError("a team has one device at least");
  }
  const DeviceInfo& first = members.front()->device();
  for (const Backend* member : members) {
    const DeviceInfo& device = member->device();
    if (device.kind != first.kind || device.name != first.name) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a team's devices must be alike: ", first.name, ", ", device.name));
    }
  }
  const DeviceRates rates = Calibrate(members);
  return std::make_unique<Team>(std::move(members), rates);
}

}  // namespace attnd
