// transport_bench: what the whole path costs beside the bytes it moves. attnd
// with a backend that only copies against a raw ByteBuffer echo and against
// plain generated protobuf: three tensors in, one out, caller memory to caller
// memory, one connection, two processes each, calls interleaved. Beside the
// time stands what the server's threads take of processors for a gigabyte; with
// --older, against an older build of this program.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/echo_peers.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kRawBar = 0.85;
constexpr double kProtoBar = 2.5;
constexpr double kOlderCpuBar = 0.9;

// Roles of servers, in processes of their own.
constexpr char kAttnd[] = "attnd";
constexpr char kAttndLongLinks[] = "attnd_long_links";
constexpr char kRawEcho[] = "raw";
constexpr char kProtoEcho[] = "proto";

struct Options {
  // Where a process's memory and threads happen to lie moves its figures by a
  // fifth, so all start afresh between batches of rounds.
  int starts = 6;
  int rounds = 10;  // after each start and its warm-up
  int warm_up = 8;
  int mib = 16;
  std::string older;
  bool long_links = false;
  bool check = false;
};

struct Contender {
  const char* name;
  const char* role;
  EchoCall (*connect)(const std::string& target);
  std::string program = kThisProgram;
  std::vector<double> ms = {};
  // Of its server, a value a start.
  std::vector<double> cpu_s_per_gb = {};
};

EchoCall ConnectUnary(const std::string& target) {
  return ConnectAttnd(target);
}

// Milliseconds of one call, whose result must be `exchange.in[0]`.
double TimeCall(const EchoCall& call, const Exchange& exchange) {
  std::memset(exchange.out, 0xee, exchange.bytes);
  const auto start = std::chrono::steady_clock::now();
  call(exchange);
  const auto end = std::chrono::steady_clock::now();
  if (std::memcmp(exchange.out, exchange.in[0], exchange.bytes) != 0) {
    std::fprintf(stderr, "the answer is not the first tensor\n");
    std::exit(1);
  }
  return std::chrono::duration<double, std::milli>(end - start).count();
}

// What a round moves, in and out.
double Gigabytes(size_t bytes) { return 4.0 * double(bytes) / 1e9; }

void Row(const Contender& c, double gigabytes) {
  std::printf("%-22s %8.2f %8.2f %8.2f %10.2f %14.3f\n", c.name,
              Quantile(c.ms, 0.1), Median(c.ms), Quantile(c.ms, 0.9),
              gigabytes / (Median(c.ms) / 1e3), Median(c.cpu_s_per_gb));
}

bool Bar(const char* what, double ratio, double bar) {
  std::printf("%s: %.2f (bar %.2f) %s\n", what, ratio, bar,
              ratio >= bar ? "ok" : "BELOW THE BAR");
  return ratio >= bar;
}

// Rounds with servers and connections of their own.
void RunRounds(const Options& options, const Exchange& exchange,
               std::vector<Contender>& contenders) {
  std::vector<std::unique_ptr<PeerProcess>> servers;
  std::vector<EchoCall> calls;
  for (const Contender& c : contenders) {
    servers.push_back(std::make_unique<PeerProcess>(
        std::vector<std::string>{absl::StrCat("--serve=", c.role)}, c.program));
    calls.push_back(c.connect(servers.back()->target()));
  }
  std::vector<double> cpu_s(servers.size());
  for (int round = -options.warm_up; round < options.rounds; ++round) {
    if (round == 0) {
      std::transform(servers.begin(), servers.end(), cpu_s.begin(),
                     [](const auto& server) { return server->CpuSeconds(); });
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      // Each goes first, second and last equally often.
      const size_t n = (i + round + options.warm_up) % calls.size();
      const double ms = TimeCall(calls[n], exchange);
      if (round >= 0) contenders[n].ms.push_back(ms);
    }
  }
  for (size_t i = 0; i < servers.size(); ++i) {
    contenders[i].cpu_s_per_gb.push_back(
        (servers[i]->CpuSeconds() - cpu_s[i]) /
        (options.rounds * Gigabytes(exchange.bytes)));
  }
}

int Run(const Options& options) {
  const size_t bytes = size_t(options.mib) << 20;
  std::vector<std::byte> q(bytes), k(bytes), v(bytes), o(bytes);
  for (size_t i = 0; i < bytes; ++i) q[i] = std::byte(i * 2654435761u >> 16);
  k = q, v = q;
  const Exchange exchange{{q.data(), k.data(), v.data()}, o.data(), bytes};
  std::vector<Contender> contenders = {
      {"attnd", options.long_links ? kAttndLongLinks : kAttnd, ConnectUnary},
      {"raw ByteBuffer echo", kRawEcho, ConnectRawEcho},
      {"plain protobuf echo", kProtoEcho, ConnectProtoEcho}};
  if (!options.older.empty()) {
    contenders.push_back(
        {"attnd, older build", kAttnd, ConnectUnary, options.older});
  }
  for (int start = 0; start < options.starts; ++start) {
    RunRounds(options, exchange, contenders);
  }

  std::printf("3 x %d MiB in, %d MiB out, one connection, %d rounds\n",
              options.mib, options.mib, options.starts * options.rounds);
  std::printf("%-22s %8s %8s %8s %10s %14s\n", "", "p10 ms", "p50 ms", "p90 ms",
              "GB/s", "server s/GB");
  for (const Contender& c : contenders) Row(c, Gigabytes(bytes));
  const double to_raw = Median(contenders[1].ms) / Median(contenders[0].ms);
  const double to_proto = Median(contenders[2].ms) / Median(contenders[0].ms);
  bool ok = Bar("speed against raw ByteBuffers", to_raw, kRawBar);
  ok &= Bar("speed against plain protobuf", to_proto, kProtoBar);
  if (!options.older.empty()) {
    const double cpu =
        Median(contenders[0].cpu_s_per_gb) / Median(contenders[3].cpu_s_per_gb);
    const bool met = cpu <= kOlderCpuBar;
    std::printf(
        "server CPU for a byte, of the older build: %.2f (bar %.2f) %s\n", cpu,
        kOlderCpuBar, met ? "ok" : "ABOVE THE BAR");
    ok &= met;
  }
  return ok || !options.check ? 0 : 1;
}

void Serve(const std::string& role) {
  if (role == kAttnd) ServeAttndCopying(/*long_links=*/false);
  if (role == kAttndLongLinks) ServeAttndCopying(/*long_links=*/true);
  if (role == kRawEcho) ServeRawEcho();
  if (role == kProtoEcho) ServeProtoEcho();
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  std::string serve;
  CLI::App app{"What attnd's transport costs, against two echo servers"};
  app.add_option("--starts", options.starts, "Times that all start afresh")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--rounds", options.rounds, "Measured rounds each time")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--mib", options.mib, "Size of each tensor")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--older", options.older,
                 "transport_bench of an older build, to compare with");
  app.add_flag("--long_links", options.long_links,
               "attnd's flag of that name, not for the older build");
  app.add_flag("--check", options.check, "Fail below a bar");
  app.add_option("--serve", serve, "A server's role, for the other process")
      ->group("");
  CLI11_PARSE(app, argc, argv);
  if (serve.empty()) return attnd::bench::Run(options);
  attnd::bench::Serve(serve);
  return 0;
}
