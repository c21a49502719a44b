#ifndef ATTND_TESTS_BENCH_STUDY_RING_TRACE_H_
#define ATTND_TESTS_BENCH_STUDY_RING_TRACE_H_

#include <cstdint>
#include <string>

#include "kernels/mask.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::bench {

// Tiles of this many rows by as many columns that a kernel visits: those of
// which any row sees any column. Tiles begin with the first row and the first
// column.
inline constexpr int64_t kTraceTile = 128;
int64_t VisitedTiles(const RowIntervals& sees);

// What a plan of one sequence does, step by step, as members of a JSON object:
// who has which tokens, what each step waits for, which blocks of columns it
// is about, which block being those that a device has at first, and how many
// pairs, tiles, FLOPs or bytes it takes. Pairs and tiles are those of all
// heads.
std::string TraceJson(const plan::PlanRequest& request, const plan::Plan& plan);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_STUDY_RING_TRACE_H_
