#include "tests/bench/gpu/peer/report.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace attnd::bench {

Report::Report(std::string section) : section_(std::move(section)) {}

void Report::Row(const std::string& name, double value, const char* unit) {
  const std::string full = section_ + "." + name;
  std::printf("%-52s %12.2f %s\n", full.c_str(), value, unit);
  std::fflush(stdout);
  if (!std::isfinite(value)) return;
  absl::StrAppendFormat(&rows_, "%s\"%s\": [%.3f, \"%s\"]",
                        rows_.empty() ? "" : ", ", name, value, unit);
}

void Report::Note(const std::string& text) {
  std::printf("# %s\n", text.c_str());
  std::fflush(stdout);
}

std::string Report::Json() const {
  return absl::StrFormat("{\"peer\": \"%s\", \"rows\": {%s}}", section_, rows_);
}

}  // namespace attnd::bench
