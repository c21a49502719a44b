#ifndef ATTND_TESTS_BENCH_CPU_COMPARISON_H_
#define ATTND_TESTS_BENCH_CPU_COMPARISON_H_

// Speeds against peers', each measured in turns with its peers.

#include <functional>
#include <string>
#include <vector>

namespace attnd::bench {

// What somebody does in a round: `work`, in FLOPs or bytes, in the seconds that
// `run` returns.
struct Side {
  std::string name;
  double work = 0;
  std::function<double()> run;
};

struct Peer {
  Side side;
  double bar = 0;  // our rate over its rate, at least; 0: none
};

struct Comparison {
  std::string name;
  const char* unit = "GFLOP/s";  // 1e9 of work in a second
  Side ours;
  std::vector<Peer> peers;
};

// Runs each comparison for `rounds` rounds after one to warm up, prints a line
// for each peer and says whether every bar was met. A round times all sides
// once, each settled, every other round in reverse: what the machine does to
// one it does to all. The ratio is the median over rounds.
bool RunComparisons(const std::vector<Comparison>& comparisons, int rounds);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_CPU_COMPARISON_H_
