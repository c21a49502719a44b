#ifndef ATTND_KERNELS_TEAM_CALIBRATION_H_
#define ATTND_KERNELS_TEAM_CALIBRATION_H_

#include <vector>

#include "kernels/backend.h"
#include "kernels/device_rates.h"

namespace attnd {

// The rates of a team's devices, which are alike: what they say of themselves,
// corrected by what some copies and a kernel take on all of them at once. Takes
// some 25 ms on GPUs, and is over at once where devices share the host's
// memory, or where there is one alone: nothing is measured then.
//
// What is within a third of what was expected is as expected, so that the same
// machine chooses the same plans whenever it starts. If anything fails, what
// was expected stays.
DeviceRates Calibrate(const std::vector<Backend*>& members);

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_CALIBRATION_H_
