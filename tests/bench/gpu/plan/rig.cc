#include "tests/bench/gpu/plan/rig.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/plan/plan.h"
#include "kernels/team/calibration.h"
#include "tests/bench/clock.h"

namespace attnd::bench {
namespace {

constexpr double kMostDifference = 1.0 / 64;  // of vectors
constexpr double kMostLseDifference = 1e-4;

}  // namespace

Rig::Rig(const PlanBenchOptions& options, Devices devices,
         const TensorSizes& sizes)
    : deterministic_(options.deterministic),
      devices_(std::move(devices)),
      crew_(static_cast<int>(devices_.size())),
      tensors_(devices_.front()->host_memory(), sizes),
      samples_(options.samples) {
  std::vector<Backend*> all;
  all.reserve(devices_.size());
  for (const auto& device : devices_) all.push_back(device.get());
  const double start = Seconds();
  rates_ = Calibrate(all);
  const DeviceRates expected = devices_.front()->Rates();
  absl::PrintF(
      "# to measure the devices took %.1f ms: kernels %.3f of what was "
      "expected, uploads %.3f, pulls %.3f\n",
      1e3 * (Seconds() - start), rates_.forward.flops / expected.forward.flops,
      rates_.upload.bytes / expected.upload.bytes,
      rates_.pull.bytes / expected.pull.bytes);
}

Side Rig::Shared(PlanSide::What what) {
  what.rates = rates_;
  std::vector<Backend*> all;
  all.reserve(devices_.size());
  for (const auto& device : devices_) all.push_back(device.get());
  auto run =
      std::make_unique<PlanSide>(what, all, tensors_, tensors_.got(), crew_);
  const PlanKind kind = run->plan().kind;
  return {kind, std::move(run)};
}

Side Rig::Alone(PlanSide::What what, int device) {
  what.kind = PlanKind::kHeads;
  what.rates = rates_;
  const bool is_reference = device == 0;
  return {PlanKind::kOneDevice,
          std::make_unique<PlanSide>(
              what, std::vector<Backend*>{devices_[device].get()}, tensors_,
              is_reference ? tensors_.reference() : tensors_.got(), crew_),
          is_reference};
}

void Rig::FindOutputs(const Shape& shape) {
  const Side forward = Alone({shape}, 0);
  forward.run->Run();
  forward.run->Store();
}

std::vector<Rig::Result> Rig::Results(const PlanSide& run) const {
  const Shape& shape = run.what().shape;
  const Outputs &reference = tensors_.reference(), &got = tensors_.got();
  const int64_t bytes = 2 * shape.elements();
  if (run.what().op == Op::kForward) {
    return {{"o", reference.o, got.o, bytes},
            {"lse", reference.lse, got.lse, 4 * shape.rows()}};
  }
  const int64_t kv_bytes = 2 * shape.kv_elements();
  return {{"dq", reference.dq, got.dq, bytes},
          {"dk", reference.dk, got.dk, kv_bytes},
          {"dv", reference.dv, got.dv, kv_bytes}};
}

std::vector<uint64_t> Rig::Fingerprints(const Side& side) const {
  std::vector<uint64_t> bits;
  for (const Result& result : Results(*side.run)) {
    bits.push_back(Fingerprint(
        side.is_reference ? result.reference : result.got, result.bytes));
  }
  return bits;
}

void Rig::ForgetResults(const Side& side) {
  if (side.is_reference) return;
  for (const Result& result : Results(*side.run)) {
    FillWithNan(result.got, result.bytes);
  }
}

void Rig::Check(Side& side) {
  ForgetResults(side);
  side.run->Run();
  side.run->Store();
  side.bits = Fingerprints(side);
  for (const Result& result : Results(*side.run)) Compare(result, side);
}

void Rig::Compare(const Result& result, Side& side) const {
  const PlanSide::What& what = side.run->what();
  const bool same_bits =
      what.op == Op::kForward && plan::HasOneDevicesBits(side.kind);
  // What is NaN in the reference is found so: nothing is near it.
  const std::byte* got = side.is_reference ? result.reference : result.got;
  const bool same = AreEqual(got, result.reference, result.bytes);
  const bool is_float = std::strcmp(result.name, "lse") == 0;
  const double difference =
      is_float ? LargestFloatDifference(got, result.reference, result.bytes / 4)
               : LargestDifference(got, result.reference, result.bytes / 2,
                                   what.shape.dim);
  side.is_right &= same_bits ? same && difference == 0
                             : difference <= (is_float ? kMostLseDifference
                                                       : kMostDifference);
  absl::StrAppend(&side.check, side.check.empty() ? "" : ", ", result.name,
                  same ? " same bits" : absl::StrFormat(" %.1e", difference));
}

void Rig::CheckAgain(Side& side) {
  ForgetResults(side);
  side.run->Store();
  const bool same = Fingerprints(side) == side.bits;
  absl::StrAppend(&side.check,
                  same ? "; again the same" : "; other bits again");
  if (side.run->what().op == Op::kForward || deterministic_) {
    side.is_right &= same;
  }
}

void Rig::Measure(Side& side, const PlanSide::Turn& turn) {
  side.run->RunFor(turn, [&](const PlanSide::Times& times) {
    samples_.Add(side.run->what(), PlanName(side.kind), times);
    side.seconds.push_back(times.seconds);
    side.enqueue_seconds.push_back(times.enqueue_seconds);
    side.kernel_seconds.push_back(times.kernel_seconds);
  });
}

}  // namespace attnd::bench
