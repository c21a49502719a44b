// transport_bench: what the whole path costs beside the bytes it moves. attnd
// with a backend that only copies against a raw ByteBuffer echo and against
// plain generated protobuf: three tensors in, one out, caller memory to caller
// memory, one connection, two processes each, calls interleaved.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/echo_peers.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kRawBar = 0.85;
constexpr double kProtoBar = 2.5;

struct Options {
  int pairs = 40;
  int warm_up = 5;
  int mib = 16;
  bool check = false;
};

struct Contender {
  const char* name;
  EchoCall call;
  std::vector<double> ms = {};
};

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

void Row(const Contender& c, double gigabytes) {
  std::printf("%-22s %8.2f %8.2f %8.2f %10.2f\n", c.name, Quantile(c.ms, 0.1),
              Median(c.ms), Quantile(c.ms, 0.9),
              gigabytes / (Median(c.ms) / 1e3));
}

bool Bar(const char* what, double ratio, double bar) {
  std::printf("%s: %.2f (bar %.2f) %s\n", what, ratio, bar,
              ratio >= bar ? "ok" : "BELOW THE BAR");
  return ratio >= bar;
}

int Run(const Options& options) {
  PeerProcess attnd({"--serve=attnd"}), raw({"--serve=raw"}),
      proto({"--serve=proto"});
  const size_t bytes = size_t(options.mib) << 20;
  std::vector<std::byte> q(bytes), k(bytes), v(bytes), o(bytes);
  for (size_t i = 0; i < bytes; ++i) q[i] = std::byte(i * 2654435761u >> 16);
  k = q, v = q;
  const Exchange exchange{{q.data(), k.data(), v.data()}, o.data(), bytes};

  Contender contenders[] = {
      {"attnd", ConnectAttnd(attnd.target())},
      {"raw ByteBuffer echo", ConnectRawEcho(raw.target())},
      {"plain protobuf echo", ConnectProtoEcho(proto.target())}};
  for (int round = -options.warm_up; round < options.pairs; ++round) {
    for (int i = 0; i < 3; ++i) {
      // Each goes first, second and last equally often.
      Contender& c = contenders[(i + round + options.warm_up) % 3];
      const double ms = TimeCall(c.call, exchange);
      if (round >= 0) c.ms.push_back(ms);
    }
  }

  std::printf("3 x %d MiB in, %d MiB out, one connection, %d rounds\n",
              options.mib, options.mib, options.pairs);
  std::printf("%-22s %8s %8s %8s %10s\n", "", "p10 ms", "p50 ms", "p90 ms",
              "GB/s");
  for (const Contender& c : contenders) Row(c, 4.0 * bytes / 1e9);
  const double to_raw = Median(contenders[1].ms) / Median(contenders[0].ms);
  const double to_proto = Median(contenders[2].ms) / Median(contenders[0].ms);
  bool ok = Bar("speed against raw ByteBuffers", to_raw, kRawBar);
  ok &= Bar("speed against plain protobuf", to_proto, kProtoBar);
  return ok || !options.check ? 0 : 1;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  std::string serve;
  CLI::App app{"What attnd's transport costs, against two echo servers"};
  app.add_option("--pairs", options.pairs, "Measured rounds")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--mib", options.mib, "Size of each tensor")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_flag("--check", options.check, "Fail below a bar");
  app.add_option("--serve", serve, "A server's role, for the other process")
      ->group("");
  CLI11_PARSE(app, argc, argv);
  if (serve.empty()) return attnd::bench::Run(options);
  if (serve == "attnd") attnd::bench::ServeAttndCopying();
  if (serve == "raw") attnd::bench::ServeRawEcho();
  if (serve == "proto") attnd::bench::ServeProtoEcho();
  return 0;
}
