#include "tests/bench/security/siege.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr int kLimitMiB = 128;
constexpr double kBeyondMiB = 64;
constexpr double kP99Ms = 250;
constexpr absl::Duration kRest = absl::Seconds(30);

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

}  // namespace

double Seen::P99() const {
  return std::max(Quantile(good.kept_ms, 0.99), Quantile(good.fresh_ms, 0.99));
}

Siege::Siege(Way way, const SiegeOptions& options, const Processors& processors)
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

double Siege::Resident() const {
  return server_->usage().resident_bytes / kMiB;
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

}  // namespace attnd::bench
