#ifndef ATTND_TESTS_BENCH_GPU_PLAN_CHECK_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_CHECK_H_

#include "tests/bench/gpu/plan/options.h"
#include "tests/bench/gpu/plan/rig.h"

namespace attnd::bench {

// Whether `auto` takes the quickest plan, and plans take as long as predicted.
//
// In each case of check_cases.h every kind of plan takes turns with the others,
// and with one device alone, as plan_bench.cc has it. Where inputs lie on the
// host, a run is timed from before the first upload until all downloads are
// over. Auto's plan is one of the kinds' own, whose time it then has, or one
// more side. What does not run:
//
//   a kind that makes a plan of another for this request;
//   a kind that is predicted to take 3 times as long as the quickest;
//   from the second round on, a side that has taken 1.3 times as long as the
//   quickest kind; but auto's does.
//
// The regret is auto's median over the least median of all kinds. Other users
// of the host's memory, and GPUs at their limit of power, disturb a case for
// some seconds: those that miss a bar are run again when all are over, up to
// three times, and all of their runs count alike. Prints a line a case, the
// bars of check_report.h, and a line of JSON a case. Returns whether all
// results were right, and, but on CPUs, the bars held.
bool CheckAuto(const PlanBenchOptions& options, Rig::Devices devices);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_CHECK_H_
