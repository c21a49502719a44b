// exchange_load_bench: how much a server moves for many callers at once. So
// many callers, each with an exchange of its own under way at any time, against
// an attnd that runs already (or one of this program's own that only copies):
// unary, as Exchanges, and by plain sockets with the same copies and one thread
// at each end of each, as many as connections, in turns. Forwards are bf16,
// length x heads x 128, causal.

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "proto/wire/grpc_process.h"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/peer_process.h"
#include "tests/bench/raw_socket.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

using client::TransportKind;
using Clock = std::chrono::steady_clock;

constexpr double kRawBar = 0.75;
constexpr double kUnaryBar = 1.5;

struct Options {
  std::string server;  // empty: one of our own
  int callers = 8;
  int connections = 8;  // of all callers together
  int64_t length = 4096, heads = 16;
  int rounds = 5;
  double seconds = 2;
  bool check = false;
};

constexpr int64_t kDim = 128;

struct Caller {
  explicit Caller(size_t bytes) : q(bytes / 2), o(bytes / 2) {
    for (size_t i = 0; i < q.size(); ++i) q[i] = 0x3c00 + i * 2654435761u % 255;
    k = v = q;
  }
  std::vector<uint16_t> q, k, v, o;
};

struct Contender {
  std::string name;
  // One exchange of a caller; the seconds for which a kernel ran.
  std::function<double(int caller, Caller& memory)> call;
  std::vector<double> gb_per_s = {};
  std::vector<double> kernel_share = {};  // of the time
};

// What all callers move in a while, in and out.
void Load(const Options& options, Contender& contender,
          std::vector<Caller>& callers, size_t bytes) {
  std::atomic<int64_t> done = 0, kernel_us = 0;
  std::atomic<bool> counts = false, ends = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < options.callers; ++i) {
    threads.emplace_back([&, i] {
      while (!ends) {
        const double kernel_s = contender.call(i, callers[i]);
        if (!counts) continue;
        ++done;
        kernel_us += std::llround(kernel_s * 1e6);
      }
    });
  }
  const auto nap = [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  };
  nap(options.seconds / 4);
  counts = true;
  const auto start = Clock::now();
  nap(options.seconds);
  counts = false;
  const double seconds =
      std::chrono::duration<double>(Clock::now() - start).count();
  const int64_t calls = done;
  const double kernel_s = double(kernel_us) / 1e6;
  ends = true;
  for (std::thread& thread : threads) thread.join();
  contender.gb_per_s.push_back(4.0 * double(bytes) * double(calls) / seconds /
                               1e9);
  contender.kernel_share.push_back(kernel_s / seconds);
}

Contender Attnd(const Options& options, const std::string& server,
                const char* name, TransportKind transport) {
  client::ClientOptions how;
  how.connections = options.connections;
  auto created = client::Client::Create(server, how);
  if (!created.ok()) std::exit(1);
  std::shared_ptr<client::Client> client = *std::move(created);
  const std::vector<int64_t> shape = {1, options.length, options.heads, kDim};
  return {name, [=](int, Caller& memory) {
            client::ForwardCall call;
            call.q = {client::DType::kBF16, shape, memory.q.data()};
            call.k = {client::DType::kBF16, shape, memory.k.data()};
            call.v = {client::DType::kBF16, shape, memory.v.data()};
            call.o = {client::DType::kBF16, shape, memory.o.data()};
            call.attention.mask.causal = true;
            client::CallOptions by;
            by.transport = transport;
            const auto report = client->Forward(call, by);
            if (report.ok()) return absl::ToDoubleSeconds(report->compute);
            std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
            std::exit(1);
          }};
}

Contender Raw(const Options& options, const std::string& server, size_t bytes) {
  auto calls = std::make_shared<std::vector<EchoCall>>();
  const int sockets = std::max(1, options.connections / options.callers);
  for (int i = 0; i < options.callers; ++i) {
    calls->push_back(ConnectRawSockets(server, sockets, bytes));
  }
  return {absl::StrCat("raw TCP, ", sockets, " sockets a caller"),
          [=](int caller, Caller& memory) {
            const auto in = [](const std::vector<uint16_t>& words) {
              return reinterpret_cast<const std::byte*>(words.data());
            };
            (*calls)[caller]({{in(memory.q), in(memory.k), in(memory.v)},
                              reinterpret_cast<std::byte*>(memory.o.data()),
                              bytes});
            return 0.0;
          }};
}

int Run(const Options& options) {
  // Fresh pages cost more than a copy into them: client/README.md.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  const size_t bytes = options.length * options.heads * kDim * 2;
  std::vector<Caller> callers;
  for (int i = 0; i < options.callers; ++i) callers.emplace_back(bytes);
  const std::string size = absl::StrCat("--bytes=", bytes);
  PeerProcess raw({"--serve=raw", size});
  std::unique_ptr<PeerProcess> own;
  std::string server = options.server;
  if (server.empty()) {
    own = std::make_unique<PeerProcess>(
        std::vector<std::string>{"--serve=attnd", size});
    server = own->target();
  }
  Contender all[] = {Raw(options, raw.target(), bytes),
                     Attnd(options, server, "Exchange", TransportKind::kStream),
                     Attnd(options, server, "unary", TransportKind::kUnary)};
  for (int round = 0; round < options.rounds; ++round) {
    for (Contender& c : all) {
      Load(options, c, callers, bytes);
    }
  }
  std::printf(
      "3 x %zu MiB in, %zu MiB out, %d callers with one exchange each under "
      "way, %d connections, %d rounds of %.1f s\n",
      bytes >> 20, bytes >> 20, options.callers, options.connections,
      options.rounds, options.seconds);
  std::printf("%-28s %8s %8s %8s %14s\n", "", "p10 GB/s", "p50", "p90",
              "kernels run");
  for (const Contender& c : all) {
    std::printf("%-28s %8.2f %8.2f %8.2f %12.1f %%\n", c.name.c_str(),
                Quantile(c.gb_per_s, 0.1), Median(c.gb_per_s),
                Quantile(c.gb_per_s, 0.9), 100 * Median(c.kernel_share));
  }
  const double to_raw = Median(all[1].gb_per_s) / Median(all[0].gb_per_s);
  const double to_unary = Median(all[1].gb_per_s) / Median(all[2].gb_per_s);
  std::printf("Exchange of raw sockets: %.2f (bar %.2f) %s\n", to_raw, kRawBar,
              to_raw >= kRawBar ? "ok" : "BELOW THE BAR");
  std::printf("Exchange of unary: %.2f (bar %.2f) %s\n", to_unary, kUnaryBar,
              to_unary >= kUnaryBar ? "ok" : "BELOW THE BAR");
  return to_raw >= kRawBar && to_unary >= kUnaryBar ? 0 : options.check;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  std::string serve;
  size_t bytes = 0;
  CLI::App app{"How much a server moves for many callers"};
  app.add_option("--server", options.server,
                 "Where attnd listens; none: one of our own that only copies");
  app.add_option("--callers", options.callers, "Exchanges under way at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--connections", options.connections, "To attnd")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--length", options.length, "Tokens")->capture_default_str();
  app.add_option("--heads", options.heads, "Heads")->capture_default_str();
  app.add_option("--rounds", options.rounds, "Of each contender")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "That a round measures")
      ->capture_default_str();
  app.add_flag("--check", options.check, "Fail below a bar");
  app.add_option("--serve", serve, "A server's role, for the other process")
      ->group("");
  app.add_option("--bytes", bytes, "Of its tensors")->group("");
  CLI11_PARSE(app, argc, argv);
  attnd::wire::PrepareForGrpc();
  if (serve.empty()) return attnd::bench::Run(options);
  if (serve == "raw") attnd::bench::ServeRawSockets(bytes, "");
  if (serve == "attnd") attnd::bench::ServeAttndCopying(false);
  return 0;
}
