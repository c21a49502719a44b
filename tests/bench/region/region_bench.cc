// region_bench: what it costs to hand tensors over in memory that client and
// server share, beside memcpy, an empty call and what PCIe allows; how soon
// there is a region, and how soon it is back when its client dies. Each bar is
// a ratio, or beside what it is compared with, within one run.
//
//   region_bench --check                                what needs no GPU
//   region_bench --check --device=cuda --pcie_gbs=GBS   all of it
//
// GBS is what gpu/pcie_bench says of allocated memory in the same minute.
//
// Whether regions behave rightly is for the tests, none of which depends on
// speed.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "proto/wire/grpc_process.h"
#include "tests/bench/region/section.h"

namespace attnd::bench {
namespace {

constexpr RegionSection kSections[] = {
    {"copies", "3 x 16 MiB in, 16 MiB out, to a device that only copies", false,
     Copies},
    {"cpu", "2 x 32 MiB in", false, ServerCpu},
    {"latency", "1 MiB, in and out", false, Latency},
    {"load", "48 MiB in and 16 MiB out, bf16, four lanes, a region a caller",
     true, Load},
    {"device", "bf16, causal, 16 heads of 128, in GPU memory", true,
     DeviceRegions},
    {"leases", "regions that are leased and given back", false, Leases},
    {"killed", "clients that are killed while their request runs", false,
     Killed},
};

int Run(const RegionBenchOptions& options, const std::string& only,
        bool check) {
  Table table;
  for (const RegionSection& section : kSections) {
    if (!only.empty() && only != section.name) continue;
    std::printf("%s: %s\n", section.name, section.title);
    if (section.needs_gpu && !options.on_gpu()) {
      std::printf("  skipped: needs --device=cuda\n");
      continue;
    }
    std::fflush(stdout);
    section.run(options, table);
  }
  if (table.misses() > 0) std::printf("%d missed\n", table.misses());
  return table.misses() > 0 && check ? 1 : 0;
}

// What the processes that this program starts are to be.
struct Role {
  bool serve = false, victim = false, victim_on_device = false;
  std::string socket;
  int64_t region_bytes = 0;
};

void AddRoleFlags(CLI::App& app, Role& role) {
  app.add_flag("--serve", role.serve)->group("");
  app.add_flag("--victim", role.victim)->group("");
  app.add_flag("--victim_on_device", role.victim_on_device)->group("");
  app.add_option("--socket", role.socket)->group("");
  app.add_option("--region_bytes", role.region_bytes)->group("");
}

void AddFlags(CLI::App& app, RegionBenchOptions& options) {
  app.add_option("--device", options.device, "--device of the servers")
      ->capture_default_str();
  app.add_option("--server", options.server,
                 "Measure the attnd that listens there, e.g. unix:/run/attnd, "
                 "where a section needs no other; needs the next three");
  app.add_option("--region_socket", options.region_socket,
                 "Its --region_socket");
  app.add_option("--server_pid", options.server_pid, "Its process");
  app.add_option("--metrics_port", options.metrics_port,
                 "Its --metrics_port, on 127.0.0.1");
  app.add_option("--pcie_gbs", options.pcie_gbs,
                 "GB/s that PCIe allows for three bytes in and one out at once")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--copies_us", options.copies_us,
                 "What copying 768 KiB up and 256 KiB down takes");
  app.add_option("--callers", options.callers, "Of the load")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--seconds", options.seconds, "Of each load")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--gpu", options.gpu,
                 "Whose memory is lent, as the driver counts them")
      ->capture_default_str()
      ->check(CLI::Range(0, 63));
  app.add_option("--kills", options.kills, "Clients that are killed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  namespace bench = attnd::bench;
  bench::RegionBenchOptions options;
  bench::Role role;
  std::string only;
  bool check = false;
  std::vector<std::string> names;
  for (const auto& section : bench::kSections) names.emplace_back(section.name);
  CLI::App app{"What handing tensors over in shared memory costs"};
  app.add_option("--only", only, "The one section to run")
      ->check(CLI::IsMember(names));
  app.add_flag("--check", check, "Fail on a miss");
  bench::AddFlags(app, options);
  bench::AddRoleFlags(app, role);
  CLI11_PARSE(app, argc, argv);
  attnd::wire::PrepareForGrpc();
  if (role.serve) {
    bench::ServeCopyingByRegion(role.socket, options.region_socket,
                                role.region_bytes);
    return 0;
  }
  if (role.victim) {
    bench::BeKilled(options.server, options.region_socket,
                    role.victim_on_device, options.on_gpu() ? options.gpu : -1);
    return 0;
  }
  if (!options.server.empty() &&
      (options.region_socket.empty() || options.server_pid <= 0 ||
       options.metrics_port < 0)) {
    std::fprintf(stderr,
                 "--server needs --region_socket, --server_pid and "
                 "--metrics_port\n");
    return 2;
  }
  return bench::Run(options, only, check);
}
