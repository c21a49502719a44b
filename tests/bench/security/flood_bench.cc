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

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/bench/require.h"
#include "tests/bench/security/held_streams.h"
#include "tests/bench/security/siege.h"
#include "tests/bench/security/way.h"
#include "tests/bench/table.h"
#include "tests/integration/floods.h"

namespace attnd::bench {
namespace {

struct Options {
  SiegeOptions siege;
  std::string only;
  std::string json;
  bool check = false;
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
    Siege siege(way, options.siege, processors);
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
  app.add_option("--seconds", options.siege.seconds, "Of each flood")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--threads", options.siege.threads, "That flood at once")
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
  app.add_option("--flood", options.siege.flood, "The one flood")
      ->check(CLI::IsMember(floods));
  app.add_option("--json", options.json,
                 "A file for the figures of each flood");
  app.add_flag("--check", options.check, "Fail on a miss");
  CLI11_PARSE(app, argc, argv);
  return attnd::bench::Run(options);
}
