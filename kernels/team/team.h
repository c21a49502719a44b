#ifndef ATTND_KERNELS_TEAM_TEAM_H_
#define ATTND_KERNELS_TEAM_TEAM_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace attnd {

// Several devices as one: a request is shared out by a plan (plan/plan.h).
//
// Inputs and results lie in the host's memory, where members fetch and leave
// them: what is allocated is host memory, uploads are copies into it, and
// results are written in place. A group is planned in Forward or Backward, and
// run in Proceed, which does not pause.
//
// A member that breaks is taken out for good, and the group is run anew by a
// plan over those that are left, from the inputs, which are all still there.
// Only when none is left does a stream return an error other than
// RESOURCE_EXHAUSTED: the last one's.
//
// Runs kAuto's kernels alone: UNIMPLEMENTED for any other algorithm, and for
// PlanKind::kOneDevice. What PlanKind::kAuto is follows from the request, the
// number of devices, and what they did when the team was made (calibration.h).
//
// `members` (1 or more, of one kind of device) outlive the team, and may run
// streams of their own beside it. INVALID_ARGUMENT: no members, or unlike ones.
absl::StatusOr<std::unique_ptr<Backend>> CreateTeam(
    std::vector<Backend*> members);

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_TEAM_H_
