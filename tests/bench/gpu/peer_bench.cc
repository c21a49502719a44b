// What the GPUs of one process can do for each other: copies from a peer alone,
// in queues, of rows and beside kernels, and what they cost the host.
//
//   peer_bench [--only=SECTION] [--devices=N]
//
// Lines "section.name value unit", and a line of JSON a section at the end.
// Sections: access, pulls, row_pulls, host_rows, costs, waiting, beside,
// starts.
// --only: those whose name has SECTION in it. --devices: the first N (0: all).
// Where there are not two GPUs it says so and succeeds.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/bench/clock.h"
#include "tests/bench/gpu/peer/sections.h"

namespace attnd::bench {
namespace {

struct Section {
  const char* name;
  void (*measure)(Team& team, Report& report);
};
constexpr Section kSections[] = {
    {"access", ReportAccess},       {"pulls", MeasurePulls},
    {"row_pulls", MeasureRowPulls}, {"host_rows", MeasureHostRows},
    {"costs", MeasureHostCosts},    {"waiting", MeasureWaiting},
    {"beside", MeasureBeside},      {"starts", MeasureStarts},
};

struct Options {
  std::string only;
  int devices = 0;
};

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--only=")) {
      options.only = std::string(argument);
    } else if (!absl::ConsumePrefix(&argument, "--devices=") ||
               !absl::SimpleAtoi(argument, &options.devices) ||
               options.devices < 0) {
      std::fprintf(stderr, "unknown: %s\n", argv[i]);
      return false;
    }
  }
  for (const Section& section : kSections) {
    if (absl::StrContains(section.name, options.only)) return true;
  }
  std::fprintf(stderr, "no section has \"%s\" in its name\n",
               options.only.c_str());
  return false;
}

void PrintDevices(int count) {
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    Check(cudaGetDeviceProperties(&properties, device));
    Report::Note(absl::StrCat("device ", device, ": ", properties.name));
  }
  int driver = 0, runtime = 0;
  Check(cudaDriverGetVersion(&driver));
  Check(cudaRuntimeGetVersion(&runtime));
  Report::Note(absl::StrCat("CUDA driver ", driver, ", runtime ", runtime));
}

int Run(const Options& options) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count < 2) {
    std::printf("skipped: this takes two GPUs, and there are %d (%s)\n",
                error == cudaSuccess ? count : 0, cudaGetErrorString(error));
    return 0;
  }
  if (options.devices == 1 || options.devices > count) {
    std::fprintf(stderr, "--devices: from 2 to %d, or 0\n", count);
    return 2;
  }
  if (options.devices != 0) count = options.devices;
  PrintDevices(count);
  const double start = Seconds();
  Team team(count);
  std::vector<std::string> json;
  for (const Section& section : kSections) {
    if (!absl::StrContains(section.name, options.only)) continue;
    const double begin = Seconds();
    Report report(section.name);
    section.measure(team, report);
    team.Synchronize();
    Report::Note(absl::StrCat(section.name, " took ", Seconds() - begin, " s"));
    json.push_back(report.Json());
  }
  Report::Note(absl::StrCat("all took ", Seconds() - start, " s"));
  for (const std::string& line : json) std::printf("%s\n", line.c_str());
  if (!team.gate().was_late()) return 0;
  std::fprintf(stderr, "a stream was held up for too long: times are wrong\n");
  return 1;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  if (!attnd::bench::Parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s [--only=SECTION] [--devices=N]\n", argv[0]);
    return 2;
  }
  // A kernel that is loaded when it is first launched may wait for those that
  // run, some of which wait for the host.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  return attnd::bench::Run(options);
}
