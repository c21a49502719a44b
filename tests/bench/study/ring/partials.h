#ifndef ATTND_TESTS_BENCH_STUDY_RING_PARTIALS_H_
#define ATTND_TESTS_BENCH_STUDY_RING_PARTIALS_H_

// A ring as it is written with kernels that know nothing of it: one device's
// results over single blocks, each rounded to some type, are put together in
// f32, and rounded at the end.

#include "kernels/attention.h"
#include "kernels/backend.h"
#include "tests/bench/gpu/plan/cases.h"
#include "tests/bench/gpu/plan/host_tensors.h"

namespace attnd::bench {

// Both: of one sequence cut in `devices` runs, on a stream of a CPU, into
// tensors.got(). Device r begins with its own block, and then takes those
// before it; block c's gradients are summed in the order of devices c, c + 1,
// ... Backward reads the reference's O and LSE, which are the whole's.
void ForwardOfPartials(Stream& stream, const Shape& shape, int devices,
                       DType partial, const HostTensors& tensors);
void BackwardOfPartials(Stream& stream, const Shape& shape, int devices,
                        DType partial, const HostTensors& tensors);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_STUDY_RING_PARTIALS_H_
