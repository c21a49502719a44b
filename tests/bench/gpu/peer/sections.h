#ifndef ATTND_TESTS_BENCH_GPU_PEER_SECTIONS_H_
#define ATTND_TESTS_BENCH_GPU_PEER_SECTIONS_H_

// What peer_bench measures. Every section needs a team of two at least; one
// that copies rows between members needs their pools open, and says so
// otherwise.

#include "tests/bench/gpu/peer/report.h"
#include "tests/bench/gpu/peer/team.h"

namespace attnd::bench {

// Who may read whose memory.
void ReportAccess(Team& team, Report& report);
// Contiguous copies from a peer: of one size alone, and queues of them.
void MeasurePulls(Team& team, Report& report);
// Rows with a pitch, copied from a peer.
void MeasureRowPulls(Team& team, Report& report);
// Rows with a pitch, copied between the host and GPUs.
void MeasureHostRows(Team& team, Report& report);
// What calls cost the thread that makes them.
void MeasureHostCosts(Team& team, Report& report);
// How soon what waits for an event starts.
void MeasureWaiting(Team& team, Report& report);
// Copies from a peer beside kernels: what both lose.
void MeasureBeside(Team& team, Report& report);
// Whether a copy from a peer starts while its device is busy.
void MeasureStarts(Team& team, Report& report);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PEER_SECTIONS_H_
