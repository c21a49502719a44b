// latency_bench: what attnd adds to an empty call. The smallest request (one
// query, one key, head_dim 64) by the client library, in turns with a health
// check of the same server, whose request is empty and whose answer has two
// bytes. Then, in the same way against another server, a health check by gRPC's
// own service and an empty call through the kind of handler that attnd's
// methods have: what these take is gRPC's, and the smallest request is held
// against the first of them. attnd answers health checks by itself, in less
// time than gRPC does. With --older the smallest request is sent to an older
// build, too.
//
// No third process takes turns with a pair: where processors are few, each call
// would wait for what the others' servers do after their answers.

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
#include "tests/bench/table.h"

namespace attnd::bench {
namespace {

constexpr double kBar = 1.65;
// Of an older build's latency; two runs of one build differ by as much.
constexpr double kOlderBar = 1.05;

struct Options {
  int pairs = 6000;
  int starts = 6;
  int warm_up = 300;  // pairs, per start
  std::string older;  // a latency_bench
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
  std::vector<double> older_empty_us, older_smallest_us;
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
  if (!options.older.empty()) {
    PeerProcess server({"--serve"}, options.older);
    TimeInTurns(options, EmptyCaller(server.target(), kHealthCheck),
                SmallestCaller(server.target()), latencies.older_empty_us,
                latencies.older_smallest_us);
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
  const double smallest = Median(latencies.smallest_us);
  std::printf("one query, one key, head_dim 64; %zu pairs over %d starts\n",
              latencies.empty_us.size(), options.starts);
  std::printf("%-28s %8s %8s %8s %8s\n", "", "p10 us", "p50 us", "p90 us",
              "p99 us");
  Row("smallest forward", latencies.smallest_us);
  Row("attnd's health check", latencies.empty_us);
  Row("gRPC's health check", latencies.other_empty_us);
  Row("empty call, attnd's handler", latencies.same_handler_us);
  if (!options.older.empty()) {
    Row("older: smallest forward", latencies.older_smallest_us);
    Row("older: its health check", latencies.older_empty_us);
  }
  Table table;
  table.AtMost("p50 against gRPC's health check",
               smallest / Median(latencies.other_empty_us), kBar, "x");
  table.Shows("p50 against an empty call, attnd's handler",
              smallest / Median(latencies.same_handler_us), "x");
  table.Shows("p50 against attnd's health check",
              smallest / Median(latencies.empty_us), "x");
  if (!options.older.empty()) {
    table.AtMost("p50 against the older build",
                 smallest / Median(latencies.older_smallest_us), kOlderBar,
                 "x");
  }
  return table.misses() > 0 && options.check ? 1 : 0;
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
  app.add_option("--older", options.older,
                 "latency_bench of an older build, to compare with")
      ->check(CLI::ExistingFile);
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
