// latency_bench: what attnd adds to an empty call. The smallest request (one
// query, one key, head_dim 64) by the client library against a health check,
// whose request is empty and whose answer has two bytes, by gRPC alone: the
// same server, a connection each, calls alternating, two processes. Then, in
// the same way against another server's health check, an empty call through the
// kind of handler that attnd's methods have: what it takes is gRPC's. No third
// process takes turns with a pair: where processors are few, each call would
// wait for what the others' servers do after their answers.

#include <chrono>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/empty_caller.h"
#include "tests/bench/empty_stream.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/require.h"
#include "tests/bench/smallest_caller.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kBar = 1.45;

struct Options {
  int pairs = 6000;
  int starts = 6;
  int warm_up = 300;  // pairs, per start
  bool check = false;
};

template <typename Caller>
double TimeCall(Caller& caller) {
  const auto start = std::chrono::steady_clock::now();
  if constexpr (std::is_void_v<decltype(caller.Call())>) {
    caller.Call();
  } else {
    Require(caller.Call());
  }
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now() - start)
      .count();
}

void Row(const char* name, const std::vector<double>& us) {
  std::printf("%-28s %8.1f %8.1f %8.1f %8.1f\n", name, Quantile(us, 0.1),
              Median(us), Quantile(us, 0.9), Quantile(us, 0.99));
}

struct Latencies {
  std::vector<double> empty_us, smallest_us;            // attnd
  std::vector<double> other_empty_us, same_handler_us;  // the other server
};

template <typename First, typename Second>
void TimeInTurns(const Options& options, First first, Second second,
                 std::vector<double>& first_us,
                 std::vector<double>& second_us) {
  const int pairs = options.pairs / options.starts;
  for (int i = -options.warm_up; i < pairs; ++i) {
    const double a = TimeCall(first), b = TimeCall(second);
    if (i < 0) continue;
    first_us.push_back(a);
    second_us.push_back(b);
  }
}

void Measure(const Options& options, Latencies& latencies) {
  {
    PeerProcess server({"--serve"});
    TimeInTurns(options, EmptyCaller(server.target(), kHealthCheck),
                SmallestCaller(server.target()), latencies.empty_us,
                latencies.smallest_us);
  }
  PeerProcess server({"--serve_empty"});
  TimeInTurns(options, EmptyCaller(server.target(), kHealthCheck),
              EmptyCaller(server.target(), kEmptyStreamMethod),
              latencies.other_empty_us, latencies.same_handler_us);
}

int Run(const Options& options) {
  // Where threads happen to lie moves a server's latencies by a half.
  Latencies latencies;
  for (int i = 0; i < options.starts; ++i) Measure(options, latencies);
  const double empty = Median(latencies.empty_us);
  const double smallest = Median(latencies.smallest_us);
  std::printf("one query, one key, head_dim 64; %zu pairs over %d starts\n",
              latencies.empty_us.size(), options.starts);
  std::printf("%-28s %8s %8s %8s %8s\n", "", "p10 us", "p50 us", "p90 us",
              "p99 us");
  Row("empty call (health check)", latencies.empty_us);
  Row("smallest forward", latencies.smallest_us);
  Row("empty call, other server", latencies.other_empty_us);
  Row("empty call, attnd's handler", latencies.same_handler_us);
  const double ratio = smallest / empty;
  std::printf("p50 against an empty call: %.2f (bar %.2f) %s\n", ratio, kBar,
              ratio <= kBar ? "ok" : "ABOVE THE BAR");
  std::printf("p50 against an empty call by the same kind of handler: %.2f\n",
              smallest / Median(latencies.same_handler_us));
  return ratio <= kBar || !options.check ? 0 : 1;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  bool serve = false, serve_empty = false;
  CLI::App app{"What attnd adds to the latency of an empty call"};
  app.add_option("--pairs", options.pairs, "Measured pairs of calls")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000000));
  app.add_flag("--check", options.check, "Fail above the bar");
  app.add_flag("--serve", serve, "A server's role, for the other process")
      ->group("");
  app.add_flag("--serve_empty", serve_empty, "The empty server's role")
      ->group("");
  CLI11_PARSE(app, argc, argv);
  if (serve_empty) {
    attnd::bench::ServeEmptyStream();
    return 0;
  }
  if (!serve) return attnd::bench::Run(options);
  attnd::bench::ServeAttndOnCpu();
  return 0;
}
