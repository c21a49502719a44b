#ifndef ATTND_KERNELS_PLAN_PREDICT_H_
#define ATTND_KERNELS_PLAN_PREDICT_H_

#include "absl/time/time.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// How long the devices take for the plan, from the first step's beginning to
// the last one's end, by the request's rates. A thread for each device enqueues
// its steps in their order; each begins when it has been enqueued and all that
// it waits for has ended, and a device does one upload, one download, one pull
// and one launch at a time, all of these beside each other. Where inputs lie
// decides whether uploads and downloads take any time.
absl::Duration Predict(const PlanRequest& request, const Plan& plan);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_PREDICT_H_
