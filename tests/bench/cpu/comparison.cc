#include "tests/bench/cpu/comparison.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <tuple>
#include <utility>

#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kSettleSeconds = 0.06;

// Seconds of a run, once the side has settled: after a rest, in which threads
// of whoever ran before, which wait for more work by spinning, go to sleep, it
// runs by itself until cores are awake and caches are its own. A long run does
// all that in its first part.
double RunSettled(const Side& side) {
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  const auto for_a_while = [&] {
    double seconds = 0;
    int runs = 0;
    for (; seconds < kSettleSeconds; ++runs) seconds += side.run();
    return std::make_pair(seconds, runs);
  };
  auto [seconds, runs] = for_a_while();
  if (runs > 1) std::tie(seconds, runs) = for_a_while();
  return seconds / runs;
}

// Seconds of each side in each round, ours first.
std::vector<std::vector<double>> Measure(const Comparison& comparison,
                                         int rounds) {
  std::vector<const Side*> sides = {&comparison.ours};
  for (const Peer& peer : comparison.peers) sides.push_back(&peer.side);
  std::vector<std::vector<double>> seconds(sides.size());
  for (const Side* side : sides) RunSettled(*side);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const size_t side = round % 2 == 0 ? i : sides.size() - 1 - i;
      seconds[side].push_back(RunSettled(*sides[side]));
    }
  }
  return seconds;
}

}  // namespace

bool RunComparisons(const std::vector<Comparison>& comparisons, int rounds) {
  bool passed = true;
  for (const Comparison& c : comparisons) {
    const auto seconds = Measure(c, rounds);
    for (size_t i = 0; i < c.peers.size(); ++i) {
      const Side& theirs = c.peers[i].side;
      const double bar = c.peers[i].bar;
      const double ratio =
          MedianRatio(seconds[i + 1], seconds[0]) * c.ours.work / theirs.work;
      std::printf(
          "%-34s %7.1f %-7s %-10s %7.1f  %5.2f", i == 0 ? c.name.c_str() : "",
          c.ours.work / Median(seconds[0]) / 1e9, c.unit, theirs.name.c_str(),
          theirs.work / Median(seconds[i + 1]) / 1e9, ratio);
      if (bar > 0) std::printf("  %4.2f%s", bar, ratio < bar ? "  BELOW" : "");
      std::printf("\n");
      std::fflush(stdout);
      passed = passed && ratio >= bar;
    }
  }
  return passed;
}

}  // namespace attnd::bench
