#ifndef ATTND_TESTS_KERNELS_CPU_EVERY_TARGET_H_
#define ATTND_TESTS_KERNELS_CPU_EVERY_TARGET_H_

// Runs a test on each instruction set that the kernels are compiled for and
// this machine has. Under the thread sanitizer only on the best: threads share
// memory in the same way on all of them, and plain C++ takes minutes there.

#include "gtest/gtest.h"
#include "kernels/cpu/targets.h"
// After targets.h, which decides what there is.
#include "hwy/highway.h"

namespace attnd::testing {

template <class Test>
void OnEveryTarget(Test test) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    test();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    if (::testing::Test::HasFatalFailure()) return;
#ifdef __SANITIZE_THREAD__
    return;
#endif
  }
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CPU_EVERY_TARGET_H_
