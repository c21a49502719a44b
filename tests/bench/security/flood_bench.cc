// flood_bench: what floods of HTTP/2 do to attnd and to those who call it
// meanwhile, in clear, by TLS and by mutual TLS. Connections flood it and come
// back as soon as they are ended, while another client makes small calls. That
// each flood is ended is for tests/integration/floods_test; how soon others are
// answered and in how much memory is measured here.
//
// The server has a processor of its own, and so have good calls; those who
// flood have the others. Where there are but two, they share that of the good
// calls, behind which they go.

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/bench/require.h"
#include "tests/bench/security/cuts.h"
#include "tests/bench/security/flooders.h"
#include "tests/bench/security/good_caller.h"
#include "tests/bench/security/held_streams.h"
#include "tests/bench/security/way.h"
#include "tests/bench/stats.h"
#include "tests/bench/table.h"
#include "tests/integration/floods.h"
#include "tests/integration/process.h"

namespace attnd::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr int kLimitMiB = 128;
constexpr double kBeyondMiB = 64;
constexpr double kP99Ms = 250;
constexpr absl::Duration kRest = absl::Seconds(30);

struct Options {
  double seconds = 3;
  int threads = 4;
  std::string only;
  std::string flood;
  std::string json;

  bool has(absl::string_view name) const {
    return flood.empty() || name == flood;
  }
  bool check = false;
};

// Sets of processors, by who has them.
struct Processors {
  cpu_set_t server, good, floods;
};

Processors Divide() {
  cpu_set_t all;
  sched_getaffinity(0, sizeof(all), &all);
  if (CPU_COUNT(&all) < 2) {
    Require(absl::FailedPreconditionError("it takes two processors"));
  }
  Processors divided;
  CPU_ZERO(&divided.server);
  CPU_ZERO(&divided.good);
  CPU_ZERO(&divided.floods);
  int nth = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    CPU_SET(cpu, nth == 0   ? &divided.server
                 : nth == 1 ? &divided.good
                            : &divided.floods);
    ++nth;
  }
  if (CPU_COUNT(&divided.floods) == 0) divided.floods = divided.good;
  return divided;
}

// One flood, or streams that are held.
struct Seen {
  std::string name;
  GoodCalls good;
  Poured poured;
  Cuts cuts;
  // Of a connection of its own; a flood is sent no more than that, and then
  // waited for.
  bool is_ended_within_a_mib = true;
  double peak_mib = 0;  // of the server, so far

  double P99() const {
    return std::max(Quantile(good.kept_ms, 0.99),
                    Quantile(good.fresh_ms, 0.99));
  }
};

// A server that is reached by one way, and all that is done to it.
class Siege {
 public:
  Siege(Way way, const Options& options, const Processors& processors)
      : way_(way), options_(options), processors_(processors) {
    std::vector<std::string> flags = credentials_.ServerFlags(way);
    flags.insert(flags.end(),
                 {"--threads=1", "--reflection=all",
                  absl::StrCat("--memory_limit=", kLimitMiB, "MiB")});
    // What is started has the processors of who starts it.
    sched_setaffinity(0, sizeof(cpu_set_t), &processors_.server);
    server_ = Get(testing::ServerProcess::Start(ATTND_BINARY, flags));
    sched_setaffinity(0, sizeof(cpu_set_t), &processors_.good);
    tls_ = credentials_.Peer(way);
  }

  void Run(Table& table);
  nlohmann::json ToJson() const;

 private:
  const testing::TlsClientOptions* tls() const {
    return tls_.has_value() ? &*tls_ : nullptr;
  }
  double Resident() const { return server_->usage().resident_bytes / kMiB; }
  Seen Pour(const testing::Flood& flood, GoodCaller& good);
  Seen HoldOpen(const HeldStreams& held, GoodCaller& good, Table& table);
  void Finish(Seen seen, size_t logged);
  void Judge(Table& table) const;

  const Way way_;
  const Options& options_;
  const Processors& processors_;
  const Credentials credentials_;
  std::optional<testing::TlsClientOptions> tls_;
  std::unique_ptr<testing::ServerProcess> server_;
  std::vector<Seen> seen_;
  GoodCalls alone_;
  double idle_mib_ = 0, peak_mib_ = 0, rested_mib_ = 0;
};

void PrintHead(Way way) {
  absl::PrintF("%s\n%-32s %8s %7s %8s %17s %17s %6s %8s\n", NameOf(way), "", "",
               "most", "most", "kept: p50, p99", "fresh: p50, p99", "calls",
               "peak");
  absl::PrintF("%-32s %8s %7s %8s %17s %17s %6s %8s\n", "flood", "ended",
               "frames", "KiB", "ms", "ms", "failed", "MiB");
}

std::string Two(const std::vector<double>& ms) {
  return absl::StrFormat("%.2f, %.2f", Median(ms), Quantile(ms, 0.99));
}

void Print(const Seen& seen) {
  absl::PrintF("%-32s %8d %7d %8.0f %17s %17s %6d %8.0f\n", seen.name,
               seen.poured.ended(), seen.cuts.frames, seen.cuts.bytes / 1024.0,
               Two(seen.good.kept_ms), Two(seen.good.fresh_ms),
               seen.good.failed, seen.peak_mib);
  if (seen.good.failed > 0) absl::PrintF("  %s\n", seen.good.first_error);
  std::fflush(stdout);
}

void Siege::Finish(Seen seen, size_t logged) {
  seen.cuts = CutsIn(server_->log().substr(logged));
  seen.peak_mib = server_->usage().peak_resident_bytes / kMiB;
  Print(seen);
  seen_.push_back(std::move(seen));
}

Seen Siege::Pour(const testing::Flood& flood, GoodCaller& good) {
  Seen seen;
  seen.name = flood.name;
  const std::string address = server_->tcp();
  Flooders flooders(address, flood, tls(),
                    {options_.threads, processors_.floods});
  seen.good = good.CallFor(absl::Seconds(options_.seconds));
  seen.poured = flooders.Stop();
  testing::FloodingPeer peer(address, 2, tls());
  seen.is_ended_within_a_mib = peer.Pour(flood, kMostBytes) || peer.AwaitEnd();
  return seen;
}

Seen Siege::HoldOpen(const HeldStreams& held, GoodCaller& good, Table& table) {
  Seen seen;
  seen.name = held.name;
  const auto peers = Hold(held, server_->tcp(), tls());
  seen.poured.connections = held.connections;
  seen.poured.held = std::ssize(peers);
  seen.poured.refused = held.connections - std::ssize(peers);
  seen.good = good.CallFor(absl::Seconds(options_.seconds));
  const absl::Status another = held.another(server_->unix_socket());
  table.Holds(absl::StrCat("beside ", held.name, ", another's is"),
              another.ok() ? "answered" : another.ToString(), another.ok());
  return seen;
}

void Siege::Run(Table& table) {
  GoodCaller good(server_->tcp(), credentials_.Client(way_));
  alone_ = good.CallFor(absl::Seconds(1));
  idle_mib_ = Resident();
  PrintHead(way_);
  for (const testing::Flood& flood : testing::AllFloods()) {
    if (!options_.has(flood.name)) continue;
    const size_t logged = server_->log().size();
    Finish(Pour(flood, good), logged);
  }
  for (const HeldStreams& held : AllHeldStreams()) {
    if (!options_.has(held.name)) continue;
    const size_t logged = server_->log().size();
    Finish(HoldOpen(held, good, table), logged);
  }
  peak_mib_ = server_->usage().peak_resident_bytes / kMiB;
  absl::SleepFor(kRest);
  rested_mib_ = Resident();
  Judge(table);
}

void Siege::Judge(Table& table) const {
  int failed = alone_.failed;
  int64_t frames = 0, bytes = 0, late = 0, never_ended = 0, refused = 0;
  const Seen *slowest = &seen_.front(), *endless = nullptr;
  for (const Seen& seen : seen_) {
    failed += seen.good.failed;
    frames = std::max(frames, seen.cuts.frames);
    bytes = std::max(bytes, seen.cuts.bytes);
    late += seen.cuts.late;
    if (!seen.is_ended_within_a_mib) endless = &seen;
    refused += seen.poured.refused;
    never_ended += seen.poured.never_ended;
    if (seen.P99() > slowest->P99()) slowest = &seen;
  }
  table.AtMost("connections that flooded and were never ended",
               static_cast<double>(never_ended), 0);
  table.Shows("connections that were refused", static_cast<double>(refused));
  table.AtMost("ends logged after 1,000 frames and 1 MiB",
               static_cast<double>(late), 0);
  table.Holds("each is ended within a MiB",
              endless == nullptr ? "yes" : "not " + endless->name,
              endless == nullptr);
  table.Shows("most frames before an end", static_cast<double>(frames));
  table.Shows("most bytes before an end", static_cast<double>(bytes) / kMiB,
              "MiB");
  table.AtMost("good calls that failed", failed, 0);
  table.Shows("good calls alone: p50, kept connection",
              absl::Milliseconds(Median(alone_.kept_ms)));
  table.Shows("good calls alone: p50, fresh connection",
              absl::Milliseconds(Median(alone_.fresh_ms)));
  table.AtMost(absl::StrCat("p99 of good calls: ", slowest->name),
               absl::Milliseconds(slowest->P99()), absl::Milliseconds(kP99Ms));
  table.AtMost("peak of memory", peak_mib_, kLimitMiB + kBeyondMiB, "MiB");
  table.AtMost(absl::StrFormat("memory 30 s later (idle: %.0f MiB)", idle_mib_),
               rested_mib_, idle_mib_ + kBeyondMiB, "MiB");
}

nlohmann::json Siege::ToJson() const {
  nlohmann::json floods = nlohmann::json::array();
  for (const Seen& seen : seen_) {
    floods.push_back({{"flood", seen.name},
                      {"connections", seen.poured.connections},
                      {"ended", seen.poured.ended()},
                      {"never_ended", seen.poured.never_ended},
                      {"refused", seen.poured.refused},
                      {"sent_mib", seen.poured.mib},
                      {"ends_logged", seen.cuts.seen},
                      {"ended_within_a_mib", seen.is_ended_within_a_mib},
                      {"most_frames", seen.cuts.frames},
                      {"most_bytes", seen.cuts.bytes},
                      {"kept_calls", seen.good.kept_ms.size()},
                      {"kept_p50_ms", Median(seen.good.kept_ms)},
                      {"kept_p99_ms", Quantile(seen.good.kept_ms, 0.99)},
                      {"fresh_calls", seen.good.fresh_ms.size()},
                      {"fresh_p50_ms", Median(seen.good.fresh_ms)},
                      {"fresh_p99_ms", Quantile(seen.good.fresh_ms, 0.99)},
                      {"failed", seen.good.failed},
                      {"peak_resident_mib", seen.peak_mib}});
  }
  return {{"way", NameOf(way_)},
          {"memory_limit_mib", kLimitMiB},
          {"idle_resident_mib", idle_mib_},
          {"peak_resident_mib", peak_mib_},
          {"resident_30_s_later_mib", rested_mib_},
          {"floods", std::move(floods)}};
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
  const Processors processors = Divide();
  Table table;
  nlohmann::json ways = nlohmann::json::array();
  for (const Way way : kWays) {
    if (!options.only.empty() && options.only != NameOf(way)) continue;
    Siege siege(way, options, processors);
    siege.Run(table);
    ways.push_back(siege.ToJson());
  }
  if (json.is_open()) json << ways.dump(1) << '\n';
  if (table.misses() > 0) std::printf("%d missed\n", table.misses());
  return table.misses() > 0 && options.check ? 1 : 0;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  CLI::App app{"What floods of HTTP/2 do to attnd and to its other clients"};
  app.add_option("--seconds", options.seconds, "Of each flood")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--threads", options.threads, "That flood at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 200));
  std::vector<std::string> names;
  for (const auto way : attnd::bench::kWays) {
    names.emplace_back(attnd::bench::NameOf(way));
  }
  std::vector<std::string> floods;
  for (const auto& flood : attnd::testing::AllFloods()) {
    floods.push_back(flood.name);
  }
  for (const auto& held : attnd::bench::AllHeldStreams()) {
    floods.emplace_back(held.name);
  }
  app.add_option("--only", options.only, "The one way to reach the server by")
      ->check(CLI::IsMember(names));
  app.add_option("--flood", options.flood, "The one flood")
      ->check(CLI::IsMember(floods));
  app.add_option("--json", options.json,
                 "A file for the figures of each flood");
  app.add_flag("--check", options.check, "Fail on a miss");
  CLI11_PARSE(app, argc, argv);
  return attnd::bench::Run(options);
}
