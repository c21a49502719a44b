// ring_study: plans in which several devices share one self-attention in bf16,
// for study.py. Prints a line of JSON for each of them.
//
//   ring_study trace|accuracy|time [--device=cpu*N|cuda[:0,1]] [--plans=...]
//              [--lens=N,...] [--ops=forward,backward] [--batch=N] [--heads=N]
//              [--dim=N] [--causal=0|1] [--sections=N] [--tflops=N]
//              [--link_gb=N] [--rounds=N] [--settle_ms=N] [--timed_ms=N]
//
// trace: what each plan does, step by step; computes nothing. accuracy: how far
// results of each plan are from one device's and from float64, by device, and
// those of a ring that is put together of single blocks' results, in 16 bits or
// in f32, which takes a cpu. time: how long a plan takes (study/ring/timing.h).
//
// --plans: one_device (of time alone), heads, gather, ring, striped, zigzag,
// kv.
// --sections: of gather, in how many it fetches heads. --tflops, --link_gb: of
// trace, what the plan takes a device to compute, and to pull, in a second; as
// it knows --device unless given. --device, --rounds,
// --settle_ms and --timed_ms are plan_bench's, but for the default, cpu*8.
// Without a GPU and with --device=cuda it says so, and succeeds.

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/backend.h"
#include "kernels/plan/make_plan.h"
#include "tests/bench/gpu/plan/options.h"
#include "tests/bench/require.h"
#include "tests/bench/study/ring/accuracy.h"
#include "tests/bench/study/ring/options.h"
#include "tests/bench/study/ring/timing.h"
#include "tests/bench/study/ring/trace.h"

namespace attnd::bench {
namespace {

// Nobody looks at the memory.
Problem ProblemOf(const Shape& shape, const KvSegment& segment) {
  Problem problem;
  problem.batch = shape.batch;
  problem.q_len = shape.len;
  problem.q_heads = shape.q_heads;
  problem.kv_heads = shape.kv_heads;
  problem.head_dim = problem.value_dim = shape.dim;
  problem.q.dtype = DType::kBF16;
  problem.kv = {&segment, 1};
  problem.mask.causal = shape.causal;
  return problem;
}

void Trace(const RingStudyOptions& options, const Devices& devices) {
  const int count = static_cast<int>(devices.size());
  for (const int len : options.lens) {
    const Shape shape = options.shape(len);
    KvSegment segment;
    segment.len = len;
    segment.k.dtype = segment.v.dtype = DType::kBF16;
    const Problem problem = ProblemOf(shape, segment);
    const Problem* const problems[] = {&problem};
    for (const Op op : options.ops) {
      for (const PlanKind kind : options.plans) {
        plan::PlanRequest request = plan::DescribeShapes(
            op, problems, {.plan = kind}, *devices.front());
        request.sections = options.sections;
        if (options.tflops > 0)
          plan::KernelRatesOf(request).flops = 1e12 * options.tflops;
        if (options.link_gb > 0)
          request.rates.pull.bytes = 1e9 * options.link_gb;
        const plan::Plan plan = plan::MakePlan(request, count);
        absl::PrintF(
            "{\"plan\": \"%s\", \"op\": \"%s\", \"devices\": %d, \"batch\": "
            "%d, \"len\": %d, \"heads\": %d, \"dim\": %d, \"causal\": %s, "
            "%s}\n",
            PlanName(kind), OpName(op), count, shape.batch, len, shape.q_heads,
            shape.dim, shape.causal ? "true" : "false",
            TraceJson(request, plan));
      }
    }
  }
}

int Run(const RingStudyOptions& options) {
  const Devices devices = Get(FindDevices(options.device));
  if (devices.empty()) {
    std::printf("{\"skipped\": \"there is no GPU\"}\n");
    return 0;
  }
  if (options.what == "trace") {
    Trace(options, devices);
  } else if (options.what == "accuracy") {
    PrintAccuracy(options, devices);
  } else {
    PrintTimes(options, devices);
  }
  return 0;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  return attnd::bench::Run(
      attnd::bench::Get(attnd::bench::ParseRingStudyOptions(argc, argv)));
}
