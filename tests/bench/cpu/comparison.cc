#include "tests/bench/cpu/comparison.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

// After a rest, in which the threads of whoever ran before, which wait for more
// work by spinning, go to sleep.
double RunRested(const Side& side) {
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  return side.run();
}

// Seconds of each side in each round, ours first.
std::vector<std::vector<double>> Measure(const Comparison& comparison,
                                         int rounds) {
  std::vector<const Side*> sides = {&comparison.ours};
  for (const Peer& peer : comparison.peers) sides.push_back(&peer.side);
  std::vector<std::vector<double>> seconds(sides.size());
  for (const Side* side : sides) RunRested(*side);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const size_t side = round % 2 == 0 ? i : sides.size() - 1 - i;
      seconds[side].push_back(RunRested(*sides[side]));
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
