#include "kernels/plan/gather.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

// What a section more costs, in seconds, on 2 x H100: launches, copies, and the
// host's work. Backward has more of all of them.
constexpr double kForwardSection = 15e-6, kBackwardSection = 190e-6;
// The share of their speed that a section's copies reach, some MiB each.
constexpr double kReached = 0.73;
constexpr int kMostSections = 6;

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

// How long all of it takes in sections of these sizes, if fetching and
// computing all heads take so long.
double Seconds(const std::vector<int64_t>& sizes, double heads, double fetch,
               double compute, double send_back, double section) {
  double fetched = 0, done = 0;
  for (const int64_t size : sizes) {
    const double share = static_cast<double>(size) / heads;
    fetched += fetch * share;
    done = std::max(done, fetched) + compute * share + section;
  }
  return done + send_back * static_cast<double>(sizes.back()) / heads;
}

}  // namespace

Sections ChooseSections(const PlanRequest& request, int devices) {
  int64_t heads = 1;
  for (const ProblemShape& shape : request.problems) {
    heads = std::max(heads, shape.kv_heads);
  }
  const bool backward = request.op == Op::kBackward;
  const Plan whole = backward ? GatherBackward(request, devices, {1.0})
                              : GatherForward(request, devices, {1.0});
  double fetch = 0, compute = 0;
  for (const PlanCost::Device& device : whole.cost.devices) {
    fetch = std::max(fetch, static_cast<double>(device.pulled_bytes) /
                                (kReached * request.pulled_per_second));
    compute = std::max(compute, device.flops / request.flops_per_second);
  }
  // Of what backward's devices pull about half are terms of dQ.
  const double send_back = backward ? fetch / 2 : 0;
  fetch -= send_back;
  const double section = backward ? kBackwardSection : kForwardSection;
  const double growth = std::clamp(compute / std::max(fetch, 1e-9), 1.0, 16.0);
  std::vector<int64_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (int count = 1; count <= std::min<int64_t>(heads, kMostSections);
       ++count) {
    if (request.sections > 0 &&
        count != std::min<int64_t>(request.sections, heads)) {
      continue;
    }
    const std::vector<int64_t> sizes = Sizes(heads, count, growth, backward);
    const double seconds = Seconds(sizes, static_cast<double>(heads), fetch,
                                   compute, send_back, section);
    if (seconds < least) {
      least = seconds;
      best = sizes;
    }
  }
  Sections sections;
  sections.reserve(best.size());
  int64_t end = 0;
  for (const int64_t size : best) {
    end += size;
    sections.push_back(static_cast<double>(end) / static_cast<double>(heads));
  }
  return sections;
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
  const Sections sections = ChooseSections(request, devices);
  return request.op == Op::kForward
             ? GatherForward(request, devices, sections)
             : GatherBackward(request, devices, sections);
}

}  // namespace attnd::plan
