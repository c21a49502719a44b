#ifndef ATTND_TESTS_BENCH_REGION_SECTION_H_
#define ATTND_TESTS_BENCH_REGION_SECTION_H_

// What region_bench's sections measure, and the bars that they are held to.

#include <sys/types.h>

#include <string>

#include "tests/bench/table.h"

namespace attnd::bench {

struct RegionBenchOptions {
  // --device of the servers that it starts.
  std::string device = "cpu";
  // One that runs already, in place of these; all four, or none.
  std::string server, region_socket;
  pid_t server_pid = 0;
  int metrics_port = -1;

  // GB/s that PCIe allows for three bytes in and one out at once. 0: unknown.
  double pcie_gbs = 0;
  // What copying 768 KiB up and 256 KiB down takes. Negative: what memcpy
  // takes, or on a GPU what the server says that its copies took.
  double copies_us = -1;
  int callers = 8;
  double seconds = 3;  // of each load
  int gpu = 0;         // whose memory is lent, as the driver counts them
  int kills = 1000;

  bool on_gpu() const { return device != "cpu"; }
  // How many servers' calls make a median. Which processors a server's threads
  // sleep on, and how deep, moves all that one of them answers by tens of
  // microseconds for as long as it lives.
  int servers() const { return server.empty() ? 5 : 1; }
};

struct RegionSection {
  const char* name;   // of --only
  const char* title;  // what it shows
  bool needs_gpu;
  void (*run)(const RegionBenchOptions& options, Table& table);
};

// A call by region beside memcpy of its bytes, and beside a unary call.
void Copies(const RegionBenchOptions& options, Table& table);
// What the server's threads take of processors for a gigabyte.
void ServerCpu(const RegionBenchOptions& options, Table& table);
// 1 MiB beside an empty call.
void Latency(const RegionBenchOptions& options, Table& table);
// Callers that keep a GPU's lanes and both directions of its bus busy.
void Load(const RegionBenchOptions& options, Table& table);
// Regions of GPU memory.
void DeviceRegions(const RegionBenchOptions& options, Table& table);
// How soon there is a region, and what others notice of its being replaced.
void Leases(const RegionBenchOptions& options, Table& table);
// Clients that are killed in the middle of a request.
void Killed(const RegionBenchOptions& options, Table& table);

// The client that Killed kills: asks for a region and for a long forward in it,
// says so, and waits for its end.
void BeKilled(const std::string& server, const std::string& region_socket,
              bool on_device, int gpu);
// The server of Copies and ServerCpu: attnd with a device that only copies, and
// one region of `bytes`.
void ServeCopyingByRegion(const std::string& socket,
                          const std::string& region_socket, int64_t bytes);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_REGION_SECTION_H_
