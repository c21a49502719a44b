// exchange_bench: what an Exchange costs beside the bytes that it moves. attnd
// with a backend that only copies, as Exchange and unary, over TCP and a unix
// socket, against plain sockets with the same copies: three tensors in, one
// out, caller memory to caller memory, two processes each, calls interleaved.
// Beside the time stands what the server's threads take of processors for a
// gigabyte. With --connections=N it also compares N connections.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "proto/wire/grpc_process.h"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/echo_peers.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/raw_socket.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

using client::TransportKind;

constexpr double kRawBar = 0.85;
constexpr double kUnixBar = 0.95;
constexpr double kCpuBar = 0.85;
constexpr double kScaleBar = 3;

// Roles of servers, in processes of their own.
constexpr char kAttnd[] = "attnd";
constexpr char kRaw[] = "raw";

struct Options {
  int starts = 6;  // times that all start afresh, as memory lies elsewhere then
  int rounds = 10;  // after each start and its warm-up
  int warm_up = 8;
  int mib = 16;
  int connections = 1;
  bool check = false;
};

struct Contender {
  std::string name;
  std::string role;
  bool on_unix = false;
  std::function<EchoCall(const std::string& target)> connect;
  std::vector<double> ms = {};
  std::vector<double> cpu_s_per_gb = {};  // of its server, a value a start
};

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

double Gigabytes(size_t bytes) { return 4.0 * double(bytes) / 1e9; }

void Row(const Contender& c, double gigabytes) {
  std::printf("%-28s %8.2f %8.2f %8.2f %10.2f %14.3f\n", c.name.c_str(),
              Quantile(c.ms, 0.1), Median(c.ms), Quantile(c.ms, 0.9),
              gigabytes / (Median(c.ms) / 1e3), Median(c.cpu_s_per_gb));
}

bool AtLeast(const char* what, double ratio, double bar) {
  std::printf("%s: %.2f (bar %.2f) %s\n", what, ratio, bar,
              ratio >= bar ? "ok" : "BELOW THE BAR");
  return ratio >= bar;
}

// Rounds with servers and connections of their own.
void RunRounds(const Options& options, const Exchange& exchange,
               std::vector<Contender>& contenders) {
  std::vector<std::unique_ptr<PeerProcess>> servers;
  std::vector<EchoCall> calls;
  for (size_t i = 0; i < contenders.size(); ++i) {
    const Contender& c = contenders[i];
    const std::string path =
        absl::StrCat("/tmp/exchange_bench.", getpid(), ".", i);
    servers.push_back(std::make_unique<PeerProcess>(std::vector<std::string>{
        absl::StrCat("--serve=", c.role), absl::StrCat("--socket=", path),
        absl::StrCat("--mib=", options.mib)}));
    calls.push_back(
        c.connect(c.on_unix ? "unix:" + path : servers.back()->target()));
  }
  std::vector<double> cpu_s(servers.size());
  for (int round = -options.warm_up; round < options.rounds; ++round) {
    if (round == 0) {
      std::transform(servers.begin(), servers.end(), cpu_s.begin(),
                     [](const auto& server) { return server->CpuSeconds(); });
    }
    for (size_t i = 0; i < calls.size(); ++i) {
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

std::function<EchoCall(const std::string&)> Attnd(int connections,
                                                  TransportKind transport) {
  return [=](const std::string& target) {
    return ConnectAttnd(target, connections, transport);
  };
}

std::function<EchoCall(const std::string&)> Raw(int connections, size_t bytes) {
  return [=](const std::string& target) {
    return ConnectRawSockets(target, connections, bytes);
  };
}

// The contenders, by their places.
enum { kRawTcp, kExchangeTcp, kUnaryTcp, kExchangeUnix, kRawMany, kMany };

int Run(const Options& options) {
  // Fresh pages cost more than a copy into them: client/README.md.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  const size_t bytes = size_t(options.mib) << 20;
  std::vector<std::byte> q(bytes), k(bytes), v(bytes), o(bytes);
  for (size_t i = 0; i < bytes; ++i) q[i] = std::byte(i * 2654435761u >> 16);
  k = q, v = q;
  const Exchange exchange{{q.data(), k.data(), v.data()}, o.data(), bytes};
  std::vector<Contender> all = {
      {"raw TCP, 1 socket", kRaw, false, Raw(1, bytes)},
      {"Exchange, 1 connection", kAttnd, false,
       Attnd(1, TransportKind::kStream)},
      {"unary, 1 connection", kAttnd, false, Attnd(1, TransportKind::kUnary)},
      {"Exchange, unix socket", kAttnd, true,
       Attnd(1, TransportKind::kStream)}};
  const int n = options.connections;
  if (n > 1) {
    all.push_back(
        {absl::StrCat("raw TCP, ", n, " sockets"), kRaw, false, Raw(n, bytes)});
    all.push_back({absl::StrCat("Exchange, ", n, " connections"), kAttnd, false,
                   Attnd(n, TransportKind::kStream)});
  }
  for (int start = 0; start < options.starts; ++start) {
    RunRounds(options, exchange, all);
  }

  std::printf("3 x %d MiB in, %d MiB out, %d rounds\n", options.mib,
              options.mib, options.starts * options.rounds);
  std::printf("%-28s %8s %8s %8s %10s %14s\n", "", "p10 ms", "p50 ms", "p90 ms",
              "GB/s", "server s/GB");
  for (const Contender& c : all) Row(c, Gigabytes(bytes));
  const auto ratio = [&](int of, int to) {
    return Median(all[to].ms) / Median(all[of].ms);
  };
  bool ok = AtLeast("Exchange against raw TCP", ratio(kExchangeTcp, kRawTcp),
                    kRawBar);
  ok &= AtLeast("Exchange on a unix socket against raw TCP",
                ratio(kExchangeUnix, kRawTcp), kUnixBar);
  const double cpu = Median(all[kExchangeTcp].cpu_s_per_gb) /
                     Median(all[kUnaryTcp].cpu_s_per_gb);
  std::printf("server CPU of Exchange against unary: %.2f (bar %.2f) %s\n", cpu,
              kCpuBar, cpu <= kCpuBar ? "ok" : "ABOVE THE BAR");
  ok &= cpu <= kCpuBar;
  if (n > 1) {
    ok &= AtLeast("connections against as many raw sockets",
                  ratio(kMany, kRawMany), kRawBar);
    ok &= AtLeast("connections against one", ratio(kMany, kExchangeTcp),
                  kScaleBar);
  }
  return ok || !options.check ? 0 : 1;
}

void Serve(const std::string& role, const std::string& path, size_t bytes) {
  if (role == kAttnd) ServeAttndCopying(/*long_links=*/false, path);
  if (role == kRaw) ServeRawSockets(bytes, "");
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  std::string serve, socket;
  CLI::App app{"What an Exchange costs, against plain sockets"};
  app.add_option("--starts", options.starts, "Times that all start afresh")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--rounds", options.rounds, "Measured rounds each time")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--mib", options.mib, "Size of each tensor")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--connections", options.connections,
                 "Also compare so many connections; 1: no")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_flag("--check", options.check, "Fail below a bar");
  app.add_option("--serve", serve, "A server's role, for the other process")
      ->group("");
  app.add_option("--socket", socket, "Its unix socket")->group("");
  CLI11_PARSE(app, argc, argv);
  attnd::wire::PrepareForGrpc();
  if (serve.empty()) return attnd::bench::Run(options);
  attnd::bench::Serve(serve, socket, size_t(options.mib) << 20);
  return 0;
}
