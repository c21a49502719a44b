// cost_bench: what security costs on one connection, in throughput and in the
// smallest call's latency: attnd in clear, by TLS and by mutual TLS with a
// client as attnctl is, by TLS with a client that leaves it to gRPC, gRPC's own
// TLS at both ends, HAProxy in front (deploy/haproxy.cfg), and with --baseline
// an attnd of before its connections were inspected. All servers copy and
// compute nothing; each is a process of its own, and they take turns.
//
// What has no server is the inspector by itself: the product cannot be built
// without it, so it is run over the bytes of calls.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/clock.h"
#include "tests/bench/echo_peers.h"
#include "tests/bench/require.h"
#include "tests/bench/security/cost_side.h"
#include "tests/bench/security/inspector_cost.h"
#include "tests/bench/security/way.h"
#include "tests/bench/stats.h"
#include "tests/bench/table.h"
#include "tests/integration/haproxy.h"

namespace attnd::bench {
namespace {

constexpr double kTlsBar = 0.5;

struct Options {
  // Where a process's memory and threads happen to lie moves its figures.
  int starts = 5;
  int rounds = 8;   // exchanges, after each start and its warm-up
  int calls = 600;  // small ones, the same
  int mib = 16;
  std::string baseline;
  std::string only;
  std::string json;
  bool check = false;
};

constexpr char kClear[] = "attnd, in clear";
constexpr char kTls[] = "attnd, TLS";
constexpr char kMutualTls[] = "attnd, mutual TLS";
constexpr char kGrpcTls[] = "client: gRPC's TLS";
constexpr char kChunksClear[] = "in chunks, in clear";
constexpr char kChunksTls[] = "in chunks, TLS";
constexpr char kEchoClear[] = "raw echo, in clear";
constexpr char kEchoTls[] = "raw echo, gRPC's TLS";

// In clear, with which the others are compared, is the first.
std::vector<Side> Sides(const Options& options) {
  constexpr auto kStream = client::TransportKind::kStream;
  std::vector<Side> sides = {
      {.name = kClear},
      {.name = kTls, .way = Way::kTls},
      {.name = kMutualTls, .way = Way::kMutualTls},
      {.name = kGrpcTls, .way = Way::kTls, .grpc_tls = true},
      {.name = kChunksClear, .transport = kStream},
      {.name = kChunksTls, .way = Way::kTls, .transport = kStream},
      {.name = kEchoClear, .role = kEcho},
      {.name = kEchoTls, .role = kEcho, .way = Way::kTls}};
  if (!testing::Haproxy::Find().empty()) {
    sides.push_back({.name = "HAProxy, in clear", .has_front = true});
    sides.push_back(
        {.name = "HAProxy, TLS", .way = Way::kTls, .has_front = true});
  } else {
    std::printf("HAProxy is not installed, and left out\n");
  }
  if (!options.baseline.empty()) {
    sides.push_back(
        {.name = "baseline, in clear", .program = options.baseline});
  }
  std::erase_if(sides, [&options](const Side& side) {
    return side.name != kClear && !absl::StrContains(side.name, options.only);
  });
  return sides;
}

// Rounds with servers and connections of their own.
void RunRounds(const Options& options, const Credentials& credentials,
               const Exchange& exchange, std::vector<Side>& sides) {
  constexpr int kWarmUp = 4, kBlocks = 4;
  std::vector<std::unique_ptr<Running>> running;
  for (const Side& side : sides) {
    running.push_back(std::make_unique<Running>(side, credentials));
  }
  for (int round = -kWarmUp; round < options.rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      // Each goes first, second and last equally often.
      const size_t n =
          (i + static_cast<size_t>(round + kWarmUp)) % sides.size();
      std::memset(exchange.out, 0xee, exchange.bytes);
      running[n]->Call(exchange, round < 0 ? nullptr : &sides[n]);
      if (std::memcmp(exchange.out, exchange.in[0], exchange.bytes) != 0) {
        Require(absl::InternalError("an answer is not what was sent"));
      }
    }
  }
  // In blocks: one call would wait for what the side before does after its
  // answer.
  const int block = options.calls / kBlocks;
  for (int i = 0; i < kBlocks; ++i) {
    for (size_t n = 0; n < sides.size(); ++n) {
      for (int call = -block / 10; call < block; ++call) {
        const double seconds = Time([&] { running[n]->CallSmall(); });
        if (call >= 0) sides[n].us.push_back(seconds * 1e6);
      }
    }
  }
}

// What an exchange moves, in and out.
double Gigabytes(size_t bytes) {
  return 4.0 * static_cast<double>(bytes) / 1e9;
}

double GigabytesPerSecond(const Side& side, size_t bytes) {
  return Gigabytes(bytes) / (Median(side.ms) / 1e3);
}

// Of processors for a gigabyte.
double PerGigabyte(double cpu_s, const Side& side, size_t bytes) {
  return cpu_s / (Gigabytes(bytes) * static_cast<double>(side.ms.size()));
}

nlohmann::json ToJson(const std::vector<Side>& sides, size_t bytes,
                      const InspectorCost& inspector) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Side& side : sides) {
    rows.push_back(
        {{"side", side.name},
         {"exchange_p50_ms", Median(side.ms)},
         {"gb_per_s", GigabytesPerSecond(side, bytes)},
         {"client_s_per_gb", PerGigabyte(side.client_s, side, bytes)},
         {"server_s_per_gb", PerGigabyte(side.server_s, side, bytes)},
         {"smallest_p50_us", Median(side.us)},
         {"smallest_p99_us", Quantile(side.us, 0.99)}});
  }
  return {{"tensor_bytes", bytes},
          {"sides", std::move(rows)},
          {"inspector_ns",
           {{"small_call", inspector.call},
            {"mib_in", inspector.mib_in},
            {"mib_out", inspector.mib_out}}}};
}

void Print(const Options& options, const std::vector<Side>& sides,
           size_t bytes) {
  const Side& clear = sides.front();
  absl::PrintF(
      "3 x %d MiB in, %d MiB out, one connection: %d exchanges; %d "
      "smallest calls\n",
      options.mib, options.mib, options.starts * options.rounds,
      clear.us.size());
  absl::PrintF("%-22s %7s %6s %9s %11s %11s %9s %7s %9s\n", "", "p50 ms",
               "GB/s", "of clear", "client s/GB", "server s/GB", "small p50",
               "p99 us", "of clear");
  for (const Side& side : sides) {
    absl::PrintF("%-22s %7.2f %6.2f %8.2fx %11.3f %11.3f %9.1f %7.1f %8.2fx\n",
                 side.name, Median(side.ms), GigabytesPerSecond(side, bytes),
                 Median(clear.ms) / Median(side.ms),
                 PerGigabyte(side.client_s, side, bytes),
                 PerGigabyte(side.server_s, side, bytes), Median(side.us),
                 Quantile(side.us, 0.99), Median(side.us) / Median(clear.us));
  }
}

const Side* Find(const std::vector<Side>& sides, const char* name) {
  const auto found = std::ranges::find(sides, name, &Side::name);
  return found == sides.end() ? nullptr : &*found;
}

void Judge(const std::vector<Side>& sides, const InspectorCost& inspector,
           Table& table) {
  table.Shows("the inspector alone, a small call", inspector.call, "ns");
  table.Shows("the inspector alone, a MiB in", inspector.mib_in, "ns");
  table.Shows("the inspector alone, a MiB out", inspector.mib_out, "ns");
  const auto of = [&sides](const char* tls,
                           const char* clear) -> std::optional<double> {
    const Side* const one = Find(sides, tls);
    const Side* const other = Find(sides, clear);
    if (one == nullptr || other == nullptr) return std::nullopt;
    return Median(other->ms) / Median(one->ms);
  };
  if (const auto ratio = of(kTls, kClear)) {
    table.AtLeast("TLS, of the throughput in clear", *ratio, kTlsBar, "x");
  }
  if (const auto ratio = of(kMutualTls, kClear)) {
    table.AtLeast("mutual TLS, of the throughput in clear", *ratio, kTlsBar,
                  "x");
  }
  if (const auto ratio = of(kGrpcTls, kClear)) {
    table.Shows("TLS that is gRPC's at the client's end, of clear", *ratio,
                "x");
  }
  if (const auto ratio = of(kChunksTls, kChunksClear)) {
    table.AtLeast("TLS in chunks, of the throughput in clear", *ratio, kTlsBar,
                  "x");
  }
  if (const auto ratio = of(kEchoTls, kEchoClear)) {
    table.Shows("gRPC's own TLS, of its throughput in clear", *ratio, "x");
  }
}

int Run(const Options& options) {
  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json);
    if (!json) {
      Require(absl::InvalidArgumentError(
          absl::StrCat("--json=", options.json, ": cannot be written")));
    }
  }
  const size_t bytes = static_cast<size_t>(options.mib) << 20;
  const std::vector<std::byte> in(bytes, std::byte{0x3f});
  std::vector<std::byte> out(bytes);
  const Exchange exchange{{in.data(), in.data(), in.data()}, out.data(), bytes};
  const Credentials credentials;
  std::vector<Side> sides = Sides(options);
  for (int start = 0; start < options.starts; ++start) {
    RunRounds(options, credentials, exchange, sides);
  }
  const InspectorCost inspector = MeasureInspector();
  Print(options, sides, bytes);
  Table table;
  Judge(sides, inspector, table);
  if (json.is_open()) json << ToJson(sides, bytes, inspector).dump(1) << '\n';
  return table.misses() > 0 && options.check ? 1 : 0;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void Serve(const std::string& role, const server::ServerOptions& options) {
  if (role == kAttnd) return ServeAttnd(options);
  if (!options.tls.enabled()) return ServeRawEcho();
  ServeRawEchoByTls(Read(options.tls.certificate), Read(options.tls.key));
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  attnd::server::ServerOptions server;
  std::string serve;
  CLI::App app{"What security costs on one connection"};
  app.add_option("--starts", options.starts, "Times that all start afresh")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--rounds", options.rounds, "Exchanges each time")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--calls", options.calls, "Smallest calls each time")
      ->capture_default_str()
      ->check(CLI::Range(40, 10000));
  app.add_option("--mib", options.mib, "Size of each tensor")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--baseline", options.baseline,
                 "transport_bench of an older build, to compare with");
  app.add_option("--only", options.only,
                 "Sides whose names have this in them, and attnd in clear");
  app.add_option("--json", options.json, "A file for the figures");
  app.add_flag("--check", options.check, "Fail below the bar");
  // Of the other process.
  app.add_option("--serve", serve, "A server's role")->group("");
  app.add_option("--unix_socket", server.unix_socket)->group("");
  app.add_option("--tls_cert", server.tls.certificate)->group("");
  app.add_option("--tls_key", server.tls.key)->group("");
  app.add_option("--tls_client_ca", server.tls.client_ca)->group("");
  CLI11_PARSE(app, argc, argv);
  if (serve.empty()) return attnd::bench::Run(options);
  attnd::bench::Serve(serve, server);
  return 0;
}
