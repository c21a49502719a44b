// What copies between host and GPU reach, from memory of cudaHostAlloc and from
// a memfd that was pinned in pieces: a line each, and then both as JSON.
//
//   pcie_bench [--up_mib=48] [--down_mib=16] [--pairs=4] [--seconds=1]
//              [--device=0] [--rounds=3]
//
// Kinds of memory take turns, `rounds` times; of each the best is reported.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/bench/gpu/pcie_ceiling.h"

namespace attnd::bench {
namespace {

// Sets `value` if `argument` is --name=VALUE.
bool Take(absl::string_view argument, absl::string_view name, double& value) {
  return absl::ConsumePrefix(&argument, absl::StrCat("--", name, "=")) &&
         absl::SimpleAtod(argument, &value);
}

int Run(int argc, char** argv) {
  double up = 48, down = 16, pairs = 4, seconds = 1, device = 0, rounds = 3;
  for (int i = 1; i < argc; ++i) {
    if (Take(argv[i], "up_mib", up) || Take(argv[i], "down_mib", down) ||
        Take(argv[i], "pairs", pairs) || Take(argv[i], "seconds", seconds) ||
        Take(argv[i], "device", device) || Take(argv[i], "rounds", rounds)) {
      continue;
    }
    std::fprintf(stderr, "unknown: %s\n", argv[i]);
    return 1;
  }
  constexpr double kMiB = 1 << 20;
  PcieLoad load;
  load.device = static_cast<int>(device);
  load.up_bytes = static_cast<int64_t>(up * kMiB);
  load.down_bytes = static_cast<int64_t>(down * kMiB);
  load.pairs = static_cast<int>(pairs);
  load.time = absl::Seconds(seconds);
  constexpr HostKind kKinds[] = {HostKind::kAllocated, HostKind::kMemfd};
  PcieRates best[2];
  for (int round = 0; round < rounds; ++round) {
    for (int kind = 0; kind < 2; ++kind) {
      load.memory = kKinds[kind];
      const absl::StatusOr<PcieRates> rates = MeasurePcie(load);
      if (!rates.ok()) {
        std::fprintf(stderr, "%s\n", rates.status().ToString().c_str());
        return 1;
      }
      std::printf("%-9s %6.2f GB/s: up %6.2f, down %6.2f; alone %.1f us\n",
                  kind == 0 ? "allocated" : "memfd", rates->gb_s,
                  rates->up_gb_s, rates->down_gb_s, rates->alone_seconds * 1e6);
      if (rates->gb_s > best[kind].gb_s) best[kind] = *rates;
    }
  }
  std::string json;
  for (int kind = 0; kind < 2; ++kind) {
    load.memory = kKinds[kind];
    absl::StrAppend(&json, kind == 0 ? "" : ", ", ToJson(load, best[kind]));
  }
  std::printf("{\"pcie\": [%s]}\n", json.c_str());
  return 0;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) { return attnd::bench::Run(argc, argv); }
