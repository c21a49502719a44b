// turnaround_bench: what a server adds between a request and its result. The
// time from the last byte of a forward to the first byte of its answer, less
// what the kernel took, for unary calls and Exchanges in turn, to an attnd that
// runs already. A proxy in between says when bytes pass.

#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "attnd/client.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

using client::TransportKind;
using Clock = std::chrono::steady_clock;

constexpr double kMostMs = 1;
constexpr double kMostOfUnary = 0.15;
// What is smaller is no part of a tensor: window updates, pings, headers.
constexpr ssize_t kTensorPiece = 4096;

struct Options {
  std::string server = "127.0.0.1:7411";
  int rounds = 30;
  int warm_up = 5;
  int64_t length = 4096, heads = 16, dim = 128;
  bool check = false;
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// Passes one connection on, and remembers when pieces of tensors passed.
class Proxy {
 public:
  explicit Proxy(const std::string& server) {
    const size_t colon = server.find(':');
    to_.sin_family = AF_INET;
    to_.sin_port = htons(std::stoi(server.substr(colon + 1)));
    inet_pton(AF_INET, server.substr(0, colon).c_str(), &to_.sin_addr);
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, any, size) || getsockname(listener_, any, &size) ||
        listen(listener_, 8)) {
      Die("the proxy cannot listen");
    }
    port_ = ntohs(address.sin_port);
    std::thread([this] { Accept(); }).detach();
  }

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

  void Begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    answered_ = false;
  }
  // From the last of the request to the first of the answer.
  double Milliseconds() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!answered_) Die("no answer passed");
    return std::chrono::duration<double, std::milli>(first_ - last_).count();
  }

 private:
  void Accept() {
    for (;;) {
      const int client = accept(listener_, nullptr, nullptr);
      const int server = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(server, reinterpret_cast<sockaddr*>(&to_), sizeof to_)) {
        Die("the proxy cannot connect");
      }
      const int on = 1;
      for (int each : {client, server}) {
        setsockopt(each, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      }
      std::thread([=, this] { Pump(client, server, false); }).detach();
      std::thread([=, this] { Pump(server, client, true); }).detach();
    }
  }

  void Pump(int from, int to, bool back) {
    std::vector<char> buffer(256 << 10);
    for (;;) {
      const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      if (back) Passed(got, back);
      for (ssize_t at = 0; at < got;) {
        const ssize_t sent = send(to, buffer.data() + at, got - at, 0);
        if (sent <= 0) return;
        at += sent;
      }
      if (!back) Passed(got, back);
    }
    shutdown(to, SHUT_WR);
  }

  void Passed(ssize_t bytes, bool back) {
    if (bytes < kTensorPiece) return;
    const auto now = Clock::now();
    std::lock_guard<std::mutex> lock(mutex_);
    if (!back && !answered_) last_ = now;
    if (back && !answered_) {
      first_ = now;
      answered_ = true;
    }
  }

  sockaddr_in to_ = {};
  int listener_ = -1, port_ = 0;
  std::mutex mutex_;
  Clock::time_point last_, first_;
  bool answered_ = false;
};

// What is left of the turnaround without the kernel, one figure a round.
struct Contender {
  const char* name;
  TransportKind transport;
  std::vector<double> ms = {}, kernel_ms = {};
};

int Run(const Options& options) {
  // Fresh pages cost more than a copy into them: client/README.md.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  Proxy proxy(options.server);
  auto client = client::Client::Create(proxy.target());
  if (!client.ok()) Die(client.status().ToString());
  const std::vector<int64_t> shape = {1, options.length, options.heads,
                                      options.dim};
  const size_t bytes = options.length * options.heads * options.dim * 2;
  std::vector<uint16_t> q(bytes / 2), o(bytes / 2);
  for (size_t i = 0; i < q.size(); ++i) q[i] = 0x3c00 + i * 2654435761u % 255;
  const std::vector<uint16_t> k = q, v = q;
  client::ForwardCall call;
  call.q = {client::DType::kBF16, shape, q.data()};
  call.k = {client::DType::kBF16, shape, k.data()};
  call.v = {client::DType::kBF16, shape, v.data()};
  call.o = {client::DType::kBF16, shape, o.data()};
  call.attention.mask.causal = true;
  Contender contenders[] = {{"unary", TransportKind::kUnary},
                            {"Exchange", TransportKind::kStream}};
  for (int round = -options.warm_up; round < options.rounds; ++round) {
    for (Contender& c : contenders) {
      client::CallOptions how;
      how.transport = c.transport;
      proxy.Begin();
      const auto report = (*client)->Forward(call, how);
      if (!report.ok()) Die(report.status().ToString());
      if (round < 0) continue;
      const double kernel = absl::ToDoubleMilliseconds(report->compute);
      c.kernel_ms.push_back(kernel);
      c.ms.push_back(proxy.Milliseconds() - kernel);
    }
  }
  std::printf("forward, bf16, %ld x %ld x %ld, causal: %zu MiB in, %d rounds\n",
              long(options.length), long(options.heads), long(options.dim),
              3 * bytes >> 20, options.rounds);
  std::printf("%-10s %10s %10s %10s %12s\n", "", "p10 ms", "p50 ms", "p90 ms",
              "kernel ms");
  for (const Contender& c : contenders) {
    std::printf("%-10s %10.3f %10.3f %10.3f %12.3f\n", c.name,
                Quantile(c.ms, 0.1), Median(c.ms), Quantile(c.ms, 0.9),
                Median(c.kernel_ms));
  }
  const double ms = Median(contenders[1].ms);
  const double share = ms / Median(contenders[0].ms);
  const bool ok = ms <= kMostMs && share <= kMostOfUnary;
  std::printf(
      "last byte in to first byte out, less the kernel: %.3f ms (bar "
      "%.0f), %.2f of unary's (bar %.2f) %s\n",
      ms, kMostMs, share, kMostOfUnary, ok ? "ok" : "ABOVE THE BAR");
  return ok || !options.check ? 0 : 1;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  CLI::App app{"What a server adds between a request and its result"};
  app.add_option("--server", options.server, "Where attnd listens, IPv4:port")
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "Measured calls of each kind")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--length", options.length, "Tokens")->capture_default_str();
  app.add_option("--heads", options.heads, "Heads")->capture_default_str();
  app.add_option("--dim", options.dim, "Their dimension")
      ->capture_default_str();
  app.add_flag("--check", options.check, "Fail above a bar");
  CLI11_PARSE(app, argc, argv);
  return attnd::bench::Run(options);
}
