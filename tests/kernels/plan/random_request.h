#ifndef ATTND_TESTS_KERNELS_PLAN_RANDOM_REQUEST_H_
#define ATTND_TESTS_KERNELS_PLAN_RANDOM_REQUEST_H_

#include <cstdint>

#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// Shapes of any kind that the contract allows, small. The same seed always
// gives the same ones.
PlanRequest RandomRequest(uint32_t seed);

}  // namespace attnd::plan

#endif  // ATTND_TESTS_KERNELS_PLAN_RANDOM_REQUEST_H_
