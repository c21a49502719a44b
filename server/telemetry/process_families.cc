#include "server/telemetry/process_families.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace attnd::server {
namespace {

std::string ReadWhole(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The fields of /proc/self/stat from the third on, see proc(5): the second is
// the program's name, which may have spaces.
std::vector<std::string> StatFields() {
  const std::string text = ReadWhole("/proc/self/stat");
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return {};
  return absl::StrSplit(text.substr(name_end + 2), ' ');
}

// Seconds since 1970 at which the system started.
std::optional<double> BootTime() {
  for (absl::string_view line : absl::StrSplit(ReadWhole("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") &&
        absl::SimpleAtod(line, &seconds)) {
      return seconds;
    }
  }
  return std::nullopt;
}

}  // namespace

void AddProcessFamilies(Families& to) {
  const std::vector<std::string> fields = StatFields();
  // By the number that proc(5) gives it.
  const auto field = [&fields](size_t number) {
    double value = 0;
    const bool ok = number - 3 < fields.size() &&
                    absl::SimpleAtod(fields[number - 3], &value);
    return ok ? std::optional(value) : std::nullopt;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto user = field(14), system = field(15), threads = field(20),
             start = field(22), virtual_bytes = field(23), pages = field(24);
  if (user && system) {
    to.Counter("process_cpu_seconds_total",
               "Processor time of the process, its own and the system's for it",
               (*user + *system) / ticks);
  }
  if (virtual_bytes) {
    to.Gauge("process_virtual_memory_bytes", "Memory that is mapped",
             *virtual_bytes);
  }
  if (pages) {
    to.Gauge("process_resident_memory_bytes", "Memory that is resident",
             *pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  if (threads) to.Gauge("process_threads", "Threads", *threads);
  if (const auto boot = BootTime(); boot && start) {
    to.Gauge("process_start_time_seconds",
             "When the process started, in seconds since 1970",
             *boot + *start / ticks);
  }
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (!error) {
    // One of them is the iterator's.
    to.Gauge("process_open_fds", "File descriptors that are open",
             static_cast<double>(std::distance(begin(open), end(open)) - 1));
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    to.Gauge("process_max_fds", "The most that process_open_fds may reach",
             static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace attnd::server
