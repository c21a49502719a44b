#ifndef ATTND_TESTS_BENCH_GPU_PLAN_RIG_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_RIG_H_

// How plan_bench runs a plan, beside others and beside one device: what its
// cases and its check of `auto` have in common.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/plan_kind.h"
#include "kernels/team/crew.h"
#include "tests/bench/gpu/plan/host_tensors.h"
#include "tests/bench/gpu/plan/options.h"
#include "tests/bench/gpu/plan/plan_side.h"
#include "tests/bench/gpu/plan/samples.h"

namespace attnd::bench {

// One side of a case, and what was seen of it.
struct Side {
  PlanKind kind = PlanKind::kOneDevice;  // that: a device alone
  std::unique_ptr<PlanSide> run;
  bool is_reference = false;
  std::vector<double> seconds = {}, enqueue_seconds = {};
  std::vector<std::vector<double>> kernel_seconds = {};  // by run, by device
  std::vector<uint64_t> bits = {};  // of the first run's results
  bool is_right = true;
  std::string check = {};
};

class Rig {
 public:
  using Devices = std::vector<std::unique_ptr<Backend>>;

  // Takes memory for the largest case.
  Rig(const PlanBenchOptions& options, Devices devices,
      const TensorSizes& sizes);

  int devices() const { return static_cast<int>(devices_.size()); }
  const DeviceInfo& device() const { return devices_.front()->device(); }

  // A plan over all devices, which goes by the name of its own kind.
  Side Shared(PlanSide::What what);
  // One device with all of it. The first one's results are the reference.
  Side Alone(PlanSide::What what, int device);
  // O and LSE for a backward whose forward is not timed.
  void FindOutputs(const Shape& shape);

  // Of the first run: against the reference, which comes first.
  void Check(Side& side);
  // Of the last: the same bits once more. Not where inputs lie on the host, as
  // results have then been overwritten by other sides'.
  void CheckAgain(Side& side);

  void Measure(Side& side, const PlanSide::Turn& turn);

 private:
  struct Result {
    const char* name;
    const std::byte* reference;
    std::byte* got;
    int64_t bytes;
  };

  std::vector<Result> Results(const PlanSide& run) const;
  std::vector<uint64_t> Fingerprints(const Side& side) const;
  void ForgetResults(const Side& side);
  void Compare(const Result& result, Side& side) const;

  const bool deterministic_;
  const Devices devices_;
  // As a team of these devices measures them when it starts.
  DeviceRates rates_;
  Crew crew_;
  const HostTensors tensors_;
  SampleFile samples_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_RIG_H_
