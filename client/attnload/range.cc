#include "client/attnload/range.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/decimal.h"
#include "proto/wire/status.h"

namespace attnd::attnload {
namespace {

constexpr size_t kMaxLevels = 1000;

bool ParseLevel(absl::string_view text, double& level) {
  return ParseDecimal(text, &level) && std::isfinite(level) && level > 0;
}

}  // namespace

absl::StatusOr<std::vector<double>> ParseRange(absl::string_view text) {
  const auto refuse = [text](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", wire::Echo(text), "\": ", why,
        "; expected a number, a,b,c, from:to:step or from:to:*factor"));
  };
  std::vector<double> levels;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() == 1) {
    for (absl::string_view part : absl::StrSplit(text, ',')) {
      if (!ParseLevel(part, levels.emplace_back())) return refuse("not > 0");
    }
    if (levels.size() > kMaxLevels) return refuse("too many levels");
    return levels;
  }
  if (parts.size() != 3) return refuse("not three parts");
  double from, to, step;
  absl::string_view by = parts[2];
  const bool factor = absl::ConsumePrefix(&by, "*");
  if (!ParseLevel(parts[0], from) || !ParseLevel(parts[1], to) ||
      !ParseLevel(by, step)) {
    return refuse("not > 0");
  }
  if (to < from) return refuse("it ends before it starts");
  if (factor && step <= 1) return refuse("a factor of 1 or less");
  // Each from its index, so that steps like 0.1 do not add up their errors;
  // the slack keeps an end that is a whole number of steps away.
  const double end = to * (1 + 1e-9);
  for (int i = 0;; ++i) {
    const double level = factor ? from * std::pow(step, i) : from + step * i;
    if (level > end) return levels;
    if (levels.size() == kMaxLevels) return refuse("too many levels");
    levels.push_back(level);
  }
}

}  // namespace attnd::attnload
