#include "tests/bench/gpu/plan/options.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/bench/gpu/plan/cases.h"
#include "tests/bench/gpu/plan/check_cases.h"

namespace attnd::bench {
namespace {

using Devices = std::vector<std::unique_ptr<Backend>>;

bool ParseNumbers(absl::string_view text, std::vector<int>& values) {
  values.clear();
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    values.push_back(-1);
    if (!absl::SimpleAtoi(part, &values.back()) || values.back() < 0) {
      return false;
    }
  }
  return true;
}

bool ParseMillis(absl::string_view text, double& seconds) {
  const bool is_number = absl::SimpleAtod(text, &seconds);
  seconds /= 1e3;
  return is_number && seconds >= 0;
}

bool ParseOp(absl::string_view text, std::vector<Op>& ops) {
  ops = {text == "forward" ? Op::kForward : Op::kBackward};
  return text == "forward" || text == "backward";
}

bool ParseGathered(absl::string_view text,
                   std::optional<plan::Gathered>& gathered) {
  gathered = text == "rows" ? plan::Gathered::kRows : plan::Gathered::kColumns;
  return text == "rows" || text == "columns";
}

// I/N, the I-th of N parts.
bool ParsePart(absl::string_view text, PlanBenchOptions& options) {
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  return absl::SimpleAtoi(numbers.first, &options.part) &&
         absl::SimpleAtoi(numbers.second, &options.parts) &&
         options.part >= 1 && options.part <= options.parts;
}

// Whether it is a flag of the check's.
bool TakeOfCheck(absl::string_view argument, PlanBenchOptions& options) {
  if (absl::ConsumePrefix(&argument, "--part=")) {
    return ParsePart(argument, options);
  }
  if (absl::ConsumePrefix(&argument, "--json=")) {
    options.json = std::string(argument);
    return true;
  }
  return argument == "--check";
}

bool ParseTransport(absl::string_view text, plan::Transport& transport) {
  transport = text == "pull" ? plan::Transport::kPull : plan::Transport::kRing;
  return text == "pull" || text == "ring";
}

// Whether it is a flag of ours with a value that it can have.
bool Take(absl::string_view argument, PlanBenchOptions& options) {
  if (absl::ConsumePrefix(&argument, "--only=")) {
    options.only = std::string(argument);
    return !(options.checks_auto ? CheckCases(options.only, 1).empty()
                                 : Cases(options.only, 1).empty());
  }
  if (absl::ConsumePrefix(&argument, "--device=")) {
    options.device = std::string(argument);
    return true;
  }
  if (absl::ConsumePrefix(&argument, "--samples=")) {
    options.samples = std::string(argument);
    return true;
  }
  if (absl::ConsumePrefix(&argument, "--sections=")) {
    return ParseNumbers(argument, options.sections);
  }
  if (absl::ConsumePrefix(&argument, "--gathered=")) {
    return ParseGathered(argument, options.gathered);
  }
  if (absl::ConsumePrefix(&argument, "--transport=")) {
    return ParseTransport(argument, options.transport);
  }
  if (absl::ConsumePrefix(&argument, "--phases=")) {
    return absl::SimpleAtoi(argument, &options.phases) && options.phases >= 0;
  }
  if (absl::ConsumePrefix(&argument, "--op=")) {
    return ParseOp(argument, options.ops);
  }
  if (absl::ConsumePrefix(&argument, "--deterministic=")) {
    options.deterministic = argument == "1";
    return argument == "0" || argument == "1";
  }
  if (absl::ConsumePrefix(&argument, "--rounds=")) {
    return absl::SimpleAtoi(argument, &options.rounds) && options.rounds > 0;
  }
  if (absl::ConsumePrefix(&argument, "--settle_ms=")) {
    return ParseMillis(argument, options.settle_seconds);
  }
  if (absl::ConsumePrefix(&argument, "--timed_ms=")) {
    return ParseMillis(argument, options.timed_seconds);
  }
  return absl::ConsumePrefix(&argument, "--shrink=") &&
         absl::SimpleAtoi(argument, &options.shrink) && options.shrink > 0;
}

absl::StatusOr<Devices> Cpus(absl::string_view count_text) {
  int count = 0;
  if (!absl::SimpleAtoi(count_text, &count) || count < 1 || count > 64) {
    return absl::InvalidArgumentError("--device=cpu*N: from 1 to 64");
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  Devices devices;
  for (int i = 0; i < count; ++i) {
    auto cpu = CreateCpuBackend({.threads = std::max(1, cores / count)});
    if (!cpu.ok()) return cpu.status();
    devices.push_back(*std::move(cpu));
  }
  return devices;
}

}  // namespace

absl::StatusOr<PlanBenchOptions> ParseOptions(int argc, char** argv) {
  PlanBenchOptions options;
  options.checks_auto = std::find(argv + 1, argv + argc,
                                  absl::string_view("--check")) != argv + argc;
  if (options.checks_auto) {
    options.settle_seconds = 0.1;
    options.timed_seconds = 0.15;
  }
  for (int i = 1; i < argc; ++i) {
    if (Take(argv[i], options)) continue;
    if (options.checks_auto && TakeOfCheck(argv[i], options)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", argv[i],
                     "\" is no flag, or has a value that it "
                     "cannot have; sections are ",
                     absl::StrJoin(kSectionNames, ", ")));
  }
  return options;
}

absl::StatusOr<Devices> FindDevices(const std::string& device) {
  absl::string_view name = device;
  if (absl::ConsumePrefix(&name, "cpu*")) return Cpus(name);
  CudaOptions cuda;
  cuda.retained_bytes = int64_t{1} << 40;  // what one case took stays
  if (absl::ConsumePrefix(&name, "cuda:")) {
    if (!ParseNumbers(name, cuda.devices)) {
      return absl::InvalidArgumentError("--device=cuda:INDEX,...");
    }
  } else if (name != "cuda") {
    return absl::InvalidArgumentError("--device: cuda, cuda:0,1 or cpu*N");
  }
  if (CudaDeviceCount() == 0) return Devices();
  return CreateCudaBackends(cuda);
}

}  // namespace attnd::bench
