// service_bench: how attnd and its clients behave in time and memory when much
// happens at once, over real gRPC. That they behave rightly is for the tests,
// none of which depends on speed; how soon, how fairly and in how much memory
// is measured here, on a machine that does nothing else.

#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "tests/bench/service/section.h"

namespace attnd::bench {
namespace {

constexpr Section kSections[] = {
    {"soak", "20,000 mixed requests, 256 MiB limit", Soak},
    {"large", "400 requests near a limit of 256 MiB", Large},
    {"leak", "the same as soak with 8 KiB leaked a request", Leak},
    {"fairness", "kernels of 1 ms, one at a time", Fairness},
    {"small", "the smallest requests beside ones of 2 s", Small},
    {"slices", "calls of 2e9 FLOPs beside a request of minutes", Slices},
    {"cancel", "a request of 10 s, cancelled", Cancel},
    {"drain", "SIGTERM", Drain},
    {"stopped", "8 MiB calls to a server stopped by SIGSTOP", Stopped},
    {"stall", "an open loop of 200 requests a second, a stall of 1 s", Stall},
    {"connections", "more connections than descriptors, and than are allowed",
     ManyConnections},
    {"scrape", "metrics beside 200 peers that never read", Scrape},
};

int Run(const std::string& only, bool check) {
  Table table;
  for (const Section& section : kSections) {
    if (!only.empty() && only != section.name) continue;
    std::printf("%s: %s\n", section.name, section.title);
    std::fflush(stdout);
    section.run(table);
  }
  if (table.misses() > 0) std::printf("%d missed\n", table.misses());
  return table.misses() > 0 && check ? 1 : 0;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  std::string only;
  bool check = false;
  std::vector<std::string> names;
  for (const auto& section : attnd::bench::kSections) {
    names.emplace_back(section.name);
  }
  CLI::App app{"How soon, how fairly and in how much memory attnd serves"};
  app.add_option("--only", only, "The one section to run")
      ->check(CLI::IsMember(names));
  app.add_flag("--check", check, "Fail on a miss");
  CLI11_PARSE(app, argc, argv);
  return attnd::bench::Run(only, check);
}
