#include "kernels/plan/choose.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/predict.h"

namespace attnd::plan {
namespace {

// Those first whose results have one device's bits, and then those that move
// less.
constexpr PlanKind kCandidates[] = {PlanKind::kHeads,   PlanKind::kGather,
                                    PlanKind::kKv,      PlanKind::kZigzag,
                                    PlanKind::kStriped, PlanKind::kRing};
// A kind must be better than an earlier one by this to be chosen.
constexpr double kAlike = 1.03;
// Of more sequences, times devices, whole heads divide well, and other plans,
// which grow with both, take tens of milliseconds to make.
constexpr size_t kMostCompared = 128;

constexpr double kLeastSpeedUp = 1.25;
constexpr absl::Duration kLeastGain = absl::Milliseconds(1);

struct Candidate {
  Plan plan;
  double seconds = 0;
};

// Of kinds that can take the request, in order.
std::vector<Candidate> CandidatesFor(const PlanRequest& request, int devices) {
  std::vector<Candidate> candidates;
  for (const PlanKind kind : kCandidates) {
    PlanRequest forced = request;
    forced.kind = kind;
    Plan plan = MakePlan(forced, devices);
    if (plan.kind != kind) continue;
    const double seconds = absl::ToDoubleSeconds(Predict(forced, plan));
    candidates.push_back({std::move(plan), seconds});
    if (devices == 1 || request.sequences.size() * devices > kMostCompared) {
      break;
    }
  }
  return candidates;
}

struct Best {
  Plan plan;
  double seconds = 0;
  std::string predicted;  // "chosen by ..."; empty: there was no choice
};

Best FindBest(const PlanRequest& request, int devices) {
  std::vector<Candidate> candidates = CandidatesFor(request, devices);
  double least = std::numeric_limits<double>::infinity();
  std::string predicted;
  for (const Candidate& candidate : candidates) {
    least = std::min(least, candidate.seconds);
    absl::StrAppendFormat(
        &predicted, "%s%s %.3f", &candidate == &candidates.front() ? "" : ", ",
        PlanName(candidate.plan.kind), 1e3 * candidate.seconds);
  }
  for (Candidate& candidate : candidates) {
    if (candidate.seconds > kAlike * least) continue;
    if (candidates.size() > 1) {
      predicted = absl::StrCat("chosen by predicted milliseconds: ", predicted);
    }
    return {std::move(candidate.plan), candidate.seconds, std::move(predicted)};
  }
  return {std::move(candidates.front().plan), least, ""};  // all take forever
}

// A plan of many sequences has some hundred thousand steps: whoever asks may
// not wait for that.
std::optional<PlanChoice> ChooseForMany(const PlanRequest& request) {
  double flops = 0;
  for (const SequenceShape& sequence : request.sequences) {
    flops += FlopsOf(request, sequence);
  }
  if (absl::Seconds(flops / KernelRatesOf(request).flops) < 2 * kLeastGain) {
    return std::nullopt;
  }
  return PlanChoice{PlanKind::kHeads,
                    "chosen because many sequences divide well"};
}

}  // namespace

absl::Span<const PlanKind> Candidates() { return kCandidates; }

Plan MakeBest(const PlanRequest& request, int devices) {
  Best best = FindBest(request, devices);
  if (!best.predicted.empty()) {
    absl::StrAppend(&best.plan.why, "; ", best.predicted);
  }
  return std::move(best.plan);
}

std::optional<PlanChoice> ChooseShared(const PlanRequest& request,
                                       int devices) {
  if (request.sequences.size() > kMostGathered) {
    return ChooseForMany(request);
  }
  PlanRequest alone = request;
  alone.kind = PlanKind::kHeads;
  alone.rates.upload = {.seconds = 0,
                        .bytes = std::numeric_limits<double>::infinity()};
  const absl::Duration one = Predict(alone, MakePlan(alone, 1));
  if (one <= kLeastGain) return std::nullopt;
  const Best best = FindBest(request, devices);
  const absl::Duration together = absl::Seconds(best.seconds);
  if (one < kLeastSpeedUp * together || one - together < kLeastGain) {
    return std::nullopt;
  }
  return PlanChoice{best.plan.kind,
                    absl::StrFormat("%s; %.3f by one device", best.predicted,
                                    absl::ToDoubleMilliseconds(one))};
}

}  // namespace attnd::plan
