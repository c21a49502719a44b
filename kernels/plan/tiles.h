#ifndef ATTND_KERNELS_PLAN_TILES_H_
#define ATTND_KERNELS_PLAN_TILES_H_

#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// How long a launch takes.
struct LaunchSeconds {
  // Of all processors, so that as much of another launch, whose tiles begin
  // where this one's run out, comes later by it.
  double busy = 0;
  double until_done = 0;  // from its first tile to the end of its last one
};

// A launch's tiles are rows of a head, forward, or columns of a K/V head,
// backward, and a processor takes one after another, long ones first. So a
// launch takes what its work does on all processors, but no less than its
// longest tile, and at the end some processors have nothing left to do. Where
// there are few rows it takes no less than reading K and V. Results that are
// carried on in f32 are read and written beside that.
//
// Where backward must give the same bits each time, tiles that add to the same
// rows take turns, which counts where there are few rows. And its problems do
// not share a launch where their rows take much scratch together.
LaunchSeconds SecondsOf(const PlanRequest& request, const Plan& plan,
                        const Compute& compute);

// Whether all of the launch is decoded.
bool IsDecode(const PlanRequest& request, const Compute& compute);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_TILES_H_
