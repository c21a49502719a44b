#include "kernels/plan/gather.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "kernels/plan/predict.h"
#include "kernels/plan/tiles.h"

namespace attnd::plan {
namespace {

bool IsCausalLike(const RowIntervals& sees) {
  return sees.right >= 0 && sees.left < 0;
}

std::vector<Runs> Cut(const RowIntervals& sees, int64_t tokens, int devices,
                      const Grain& grain) {
  return IsCausalLike(sees) ? CutZigzag(tokens, devices, grain)
                            : CutEvenly(tokens, devices, grain);
}

double CostOf(const SequenceShape& sequence, const ProblemShape& shape,
              const Runs& rows) {
  double pairs = 0;
  for (const Run& run : rows) {
    pairs += PairsOf(sequence.sees, run, {0, sequence.sees.columns}) +
             static_cast<double>(run.count);
  }
  return pairs * static_cast<double>(shape.q_heads);
}

// Device of each share: the costliest to the device with the least work.
std::vector<int> Deal(const std::vector<double>& costs,
                      std::vector<double>& work) {
  const size_t n = work.size();
  std::vector<int> shares(n), devices(n), dealt(n);
  std::iota(shares.begin(), shares.end(), 0);
  std::iota(devices.begin(), devices.end(), 0);
  std::stable_sort(shares.begin(), shares.end(),
                   [&](int a, int b) { return costs[a] > costs[b]; });
  std::stable_sort(devices.begin(), devices.end(),
                   [&](int a, int b) { return work[a] < work[b]; });
  for (size_t i = 0; i < n; ++i) {
    dealt[shares[i]] = devices[i];
    work[devices[i]] += costs[shares[i]];
  }
  return dealt;
}

}  // namespace

std::vector<Placing> PlaceTokens(const PlanRequest& request, int devices) {
  std::vector<double> work(devices);
  std::vector<Placing> placings;
  placings.reserve(request.sequences.size());
  for (const SequenceShape& sequence : request.sequences) {
    const RowIntervals& sees = sequence.sees;
    const auto rows = Cut(sees, sees.rows, devices, RowGrain(sequence.unit));
    const auto columns =
        Cut(sees, sees.columns, devices, ColumnGrain(sequence.unit));
    std::vector<double> costs;
    costs.reserve(rows.size());
    for (const Runs& share : rows) {
      costs.push_back(CostOf(sequence, request.ProblemOf(sequence), share));
    }
    Placing placing{std::vector<Runs>(devices), std::vector<Runs>(devices)};
    const std::vector<int> dealt = Deal(costs, work);
    for (int share = 0; share < devices; ++share) {
      placing.rows[dealt[share]] = rows[share];
      placing.columns[dealt[share]] = columns[share];
    }
    placings.push_back(std::move(placing));
  }
  return placings;
}

namespace {

// More sections must be better than fewer by the one, and no more of them are
// tried where they are worse by the other.
constexpr double kBetter = 0.995, kWorse = 1.02;
// From the third on backward's first and last section are a head or so, and
// such launches take longer than predicted: 1, 2, 3 and 4 sections of 2 x 8k
// tokens should take 2.27, 2.25, 2.29 and 2.58 ms on two H200s, and take 2.09,
// 1.93, 2.27 and 2.57.
constexpr double kBetterInBackward = 0.98;
// Of more sequences, whose plans take long to make, no more than two are tried.
constexpr size_t kMostTried = 64;

// Sizes of `count` sections that add up to `heads`, each larger than the one
// before it by `growth`; with `tapers` the last is as small as the first.
std::vector<int64_t> Sizes(int64_t heads, int count, double growth,
                           bool tapers) {
  std::vector<double> shares;
  shares.reserve(count);
  double share = 1, sum = 0;
  for (int i = 0; i < count; ++i, share *= growth) {
    shares.push_back(tapers && i > 0 && i + 1 == count ? 1 : share);
    sum += shares.back();
  }
  std::vector<int64_t> sizes;
  sizes.reserve(count);
  double end = 0;
  int64_t dealt = 0;
  for (int i = 0; i < count; ++i) {
    end += shares[i] / sum * static_cast<double>(heads);
    const int64_t left = count - 1 - i;
    const int64_t until =
        std::clamp<int64_t>(std::llround(end), dealt + 1, heads - left);
    sizes.push_back(until - dealt);
    dealt = until;
  }
  return sizes;
}

// What a device's work takes, without any overlap: to fetch what it computes
// from, and to compute.
struct Work {
  double fetch = 0, compute = 0;
};

bool IsGradient(TensorId id) {
  return id == TensorId::kDQ || id == TensorId::kDK || id == TensorId::kDV;
}

// By device.
std::vector<Work> WorkOf(const PlanRequest& request, const Plan& plan) {
  std::vector<Work> works(plan.devices);
  for (const Step& step : plan.steps) {
    const auto* pull = std::get_if<Pull>(&step.what);
    if (pull == nullptr) continue;
    for (const Pull::Item& item : pull->items) {
      const Buffer& to = plan.buffers[item.to];
      if (IsGradient(to.tensor)) continue;
      works[step.device].fetch +=
          static_cast<double>(
              SliceBytes(request, to.tensor, to.dtype, item.slice)) /
          request.rates.pull.bytes;
    }
  }
  for (const Step& step : plan.steps) {
    if (const auto* compute = std::get_if<Compute>(&step.what)) {
      works[step.device].compute += SecondsOf(request, plan, *compute).busy;
    }
  }
  return works;
}

Plan MakeGathering(const PlanRequest& request, int devices,
                   const Gathering& gathering) {
  return gathering.what == Gathered::kColumns
             ? GatherColumns(request, devices, gathering.sections)
             : GatherRows(request, devices, gathering.sections);
}

Sections SectionsOf(const std::vector<int64_t>& sizes, int64_t heads) {
  Sections sections;
  sections.reserve(sizes.size());
  int64_t end = 0;
  for (const int64_t size : sizes) {
    end += size;
    sections.push_back(static_cast<double>(end) / static_cast<double>(heads));
  }
  return sections;
}

// One way to gather, the plan of it, and how long that should take.
struct Option {
  Gathering gathering;
  Plan plan;
  absl::Duration time = absl::InfiniteDuration();
};

Option MakeOption(const PlanRequest& request, int devices,
                  const Gathering& gathering) {
  Plan plan = MakeGathering(request, devices, gathering);
  const absl::Duration time = Predict(request, plan);
  return {gathering, std::move(plan), time};
}

// In the sections that suit such a plan.
Option ChooseSections(const PlanRequest& request, int devices, Gathered what) {
  int64_t heads = 1;
  for (const ProblemShape& shape : request.problems) {
    heads = std::max(heads, shape.kv_heads);
  }
  Option best = MakeOption(request, devices, {what, {1.0}});
  double fetch = 1e-9, compute = 0;
  for (const Work& work : WorkOf(request, best.plan)) {
    fetch = std::max(fetch, work.fetch);
    compute = std::max(compute, work.compute);
  }
  const double growth = std::clamp(compute / fetch, 1.0, 16.0);
  int64_t most = std::min<int64_t>(heads, kMostSections);
  const int64_t wanted = std::min<int64_t>(request.sections, most);
  if (wanted == 0 && request.sequences.size() > kMostTried) {
    most = std::min<int64_t>(most, 2);
  }
  const auto option = [&](int64_t count) {
    const std::vector<int64_t> sizes = Sizes(
        heads, static_cast<int>(count), growth, request.op == Op::kBackward);
    return MakeOption(request, devices, {what, SectionsOf(sizes, heads)});
  };
  if (wanted > 1) return option(wanted);
  if (wanted == 1) return best;
  for (int64_t count = 2; count <= most; ++count) {
    Option next = option(count);
    const double better =
        request.op == Op::kBackward && count > 2 ? kBetterInBackward : kBetter;
    if (next.time < better * best.time) {
      best = std::move(next);
    } else if (next.time > kWorse * best.time) {
      break;
    }
  }
  return best;
}

bool AlwaysGathersRows(const ProblemShape& shape) {
  return shape.q_heads <= shape.kv_heads;
}

Option ChooseOption(const PlanRequest& request, int devices) {
  std::vector<Gathered> candidates = {Gathered::kColumns};
  if (request.op == Op::kBackward) {
    candidates = {Gathered::kRows, Gathered::kColumns};
    if (request.gathered.has_value()) {
      candidates = {*request.gathered};
    } else if (std::any_of(request.problems.begin(), request.problems.end(),
                           AlwaysGathersRows)) {
      candidates = {Gathered::kRows};
    }
  }
  Option best;
  for (const Gathered what : candidates) {
    Option option = ChooseSections(request, devices, what);
    if (best.gathering.sections.empty() || option.time < best.time) {
      best = std::move(option);
    }
  }
  return best;
}

}  // namespace

Gathering ChooseGathering(const PlanRequest& request, int devices) {
  return ChooseOption(request, devices).gathering;
}

HeadRange SectionHeads(const ProblemShape& shape, const Sections& sections,
                       int section) {
  const auto head = [&](double share) {
    return std::llround(share * static_cast<double>(shape.kv_heads));
  };
  const int64_t begin = section == 0 ? 0 : head(sections[section - 1]);
  return {begin, head(sections[section]) - begin};
}

Plan MakeGather(const PlanRequest& request, int devices) {
  return ChooseOption(request, devices).plan;
}

}  // namespace attnd::plan
