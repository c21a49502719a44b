// service_fuzz: random problems over the whole contract, through a running
// attnd, judged by attention in double.
//
//   service_fuzz --server=HOST:PORT [--problems=5000] [--seed=1] [--clients=4]
//   service_fuzz --attnd=PATH [--device=cuda] ...    starts one itself
//   service_fuzz --server=HOST:PORT --seed=S --only=K     problem K again
//   service_fuzz --regions=host ...                  most tensors in a region
//
// Prints each miss; exits with 1 if there is one.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "attnd/region.h"
#include "tests/integration/process.h"
#include "tests/service_fuzz/exchange.h"
#include "tests/service_fuzz/generate.h"
#include "tests/service_fuzz/in_region.h"

namespace attnd::fuzz {
namespace {

// Enough for the largest problem, several times over.
constexpr int64_t kRegionBytes = int64_t{64} << 20;

struct Options {
  std::string server, attnd, device = "cpu";
  int64_t problems = 5000, first = 0, only = -1;
  uint64_t seed = 1;
  int clients = 4;
  std::string regions = "none", region_socket;
  Limits limits;
};

class Run {
 public:
  // `limits`: those of `options`, with what the server has.
  Run(std::string server, const Options& options, const Limits& limits)
      : server_(std::move(server)),
        options_(options),
        limits_(limits),
        next_(options.only < 0 ? options.first : options.only),
        end_(options.only < 0 ? options.first + options.problems
                              : options.only + 1) {}

  // Exits with 0 if all was right.
  int Go() {
    const absl::Time start = absl::Now();
    std::vector<std::thread> threads;
    for (int n = 0; n < options_.clients; ++n)
      threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    std::printf(
        "%d problems, %d with backward, %d not implemented, %d misses; seed "
        "%llu, %.1f s, %.1f problems/s\n",
        done_, backward_, unimplemented_, misses_,
        static_cast<unsigned long long>(options_.seed), seconds,
        done_ / std::max(seconds, 1e-9));
    return misses_ == 0 && done_ > 0 ? 0 : 1;
  }

 private:
  // A client's share.
  void Work() {
    auto client = Connect();
    if (!client.ok()) return Miss(client.status().ToString());
    for (int64_t k = next_++; k < end_; k = next_++) {
      const FuzzProblem problem = Generate(options_.seed, k, limits_);
      if (options_.only >= 0) std::puts(problem.Describe().c_str());
      const Outcome outcome = Exchange(**client, problem);
      if (outcome.what == Outcome::kWrong)
        Miss(absl::StrCat(problem.Describe(), "\n  ", outcome.verdict));
      std::lock_guard lock(mutex_);
      ++done_;
      backward_ += problem.backward;
      unimplemented_ += outcome.what == Outcome::kUnimplemented;
    }
  }

  absl::StatusOr<std::unique_ptr<client::Client>> Connect() {
    auto client = client::Client::Create(server_);
    if (!client.ok() || options_.regions == "none") return client;
    auto region = client::Region::Lease(options_.region_socket, kRegionBytes);
    if (!region.ok()) return region.status();
    return InRegion(*std::move(client), *std::move(region), HostCopies());
  }

  void Miss(const std::string& text) {
    std::lock_guard lock(mutex_);
    ++misses_;
    std::printf("MISS %s\n", text.c_str());
    std::fflush(stdout);
  }

  const std::string server_;
  const Options& options_;
  const Limits limits_;
  std::atomic<int64_t> next_;
  const int64_t end_;
  std::mutex mutex_;
  int done_ = 0, backward_ = 0, unimplemented_ = 0, misses_ = 0;
};

// Problems for `server`, which may have a team.
int RunOn(const std::string& server, const Options& options) {
  const auto client = client::Client::Create(server);
  const auto info = client.ok()
                        ? (*client)->GetServerInfo({absl::Minutes(1)})
                        : absl::StatusOr<client::ServerInfo>(client.status());
  if (!info.ok()) {
    std::fprintf(stderr, "%s\n", info.status().ToString().c_str());
    return 2;
  }
  Limits limits = options.limits;
  limits.plans =
      std::count(info->features.begin(), info->features.end(), "plans") > 0;
  return Run(server, options, limits).Go();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Random problems through attnd, judged by attention in double.");
  auto* server = app.add_option("--server", options.server, "HOST:PORT");
  app.add_option("--attnd", options.attnd, "the server to start")
      ->excludes(server);
  app.add_option("--device", options.device, "of --attnd")
      ->capture_default_str();
  app.add_option("--problems", options.problems, "how many")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of all problems")
      ->capture_default_str();
  app.add_option("--first", options.first, "the first problem's number")
      ->capture_default_str();
  app.add_option("--only", options.only, "one problem's number");
  app.add_option("--clients", options.clients, "at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--regions", options.regions, "where tensors lie")
      ->check(CLI::IsMember({"none", "host"}))
      ->capture_default_str();
  app.add_option("--region_socket", options.region_socket,
                 "of --server, for --regions");
  app.add_option("--max_tokens", options.limits.max_tokens, "of a sequence")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.only >= 0) options.clients = 1;
  if (!options.server.empty()) return RunOn(options.server, options);
  if (options.attnd.empty()) {
    std::fprintf(stderr, "--server or --attnd is required\n");
    return 2;
  }
  const testing::TempFolder folder;
  std::vector<std::string> flags = {"--device=" + options.device};
  if (options.regions != "none") {
    options.region_socket = folder.File("regions");
    flags.push_back("--region_socket=" + options.region_socket);
    flags.push_back(
        absl::StrCat("--region_memory=", options.clients * kRegionBytes));
  }
  const auto process = testing::ServerProcess::Start(options.attnd, flags);
  if (!process.ok()) {
    std::fprintf(stderr, "%s\n", process.status().ToString().c_str());
    return 2;
  }
  return RunOn((*process)->tcp(), options);
}

}  // namespace
}  // namespace attnd::fuzz

int main(int argc, char** argv) { return attnd::fuzz::Main(argc, argv); }
