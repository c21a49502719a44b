#ifndef ATTND_TESTS_SERVER_FAKES_TEAM_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_TEAM_BACKEND_H_

// A team that computes no more than the other fakes, and says that two devices
// did, by the plan that was asked for.

#include <optional>

#include "absl/time/time.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {

class TeamBackend : public IdentityBackend {
 public:
  TeamBackend() : team_(IdentityBackend::device()) {
    team_.kind = "team";
    team_.members = 2;
    team_.uuid.clear();
  }
  const DeviceInfo& device() const override { return team_; }

  static PlanReport Report(PlanKind kind) {
    return {.kind = kind,
            .why = "it was asked for",
            .devices = {{"fake:0", absl::Microseconds(30)},
                        {"fake:1", absl::Microseconds(20)}},
            .predicted = absl::Microseconds(25)};
  }
  // Where a test has it choose.
  std::optional<PlanChoice> choice;
  std::optional<PlanChoice> ChoosePlan(
      Op, double, const GroupOptions&,
      absl::Span<const Problem* const>) const override {
    return choice;
  }
  std::optional<PlanReport> ReportOf(const GroupOptions& options) override {
    return Report(options.plan);
  }

 private:
  DeviceInfo team_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_TEAM_BACKEND_H_
