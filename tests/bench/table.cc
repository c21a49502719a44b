#include "tests/bench/table.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attnd::bench {
namespace {

std::string Text(double value, absl::string_view unit) {
  return absl::StrFormat("%.4g%s%s", value, unit.empty() ? "" : " ", unit);
}

std::string Text(absl::Duration duration) {
  return Text(absl::ToDoubleMilliseconds(duration), "ms");
}

}  // namespace

void Table::AtMost(absl::string_view what, absl::Duration seen,
                   absl::Duration bar) {
  Row(what, Text(seen), absl::StrCat("<= ", Text(bar)), seen <= bar);
}

void Table::AtMost(absl::string_view what, double seen, double bar,
                   absl::string_view unit) {
  Row(what, Text(seen, unit), absl::StrCat("<= ", Text(bar, unit)),
      seen <= bar);
}

void Table::AtLeast(absl::string_view what, absl::Duration seen,
                    absl::Duration bar) {
  Row(what, Text(seen), absl::StrCat(">= ", Text(bar)), seen >= bar);
}

void Table::AtLeast(absl::string_view what, double seen, double bar,
                    absl::string_view unit) {
  Row(what, Text(seen, unit), absl::StrCat(">= ", Text(bar, unit)),
      seen >= bar);
}

void Table::Within(absl::string_view what, double seen, double low,
                   double high) {
  Row(what, Text(seen, ""), absl::StrCat(Text(low, ""), " to ", Text(high, "")),
      low <= seen && seen <= high);
}

void Table::Shows(absl::string_view what, absl::Duration seen) {
  Row(what, Text(seen), "", /*ok=*/true);
}

void Table::Shows(absl::string_view what, double seen, absl::string_view unit) {
  Row(what, Text(seen, unit), "", /*ok=*/true);
}

void Table::Holds(absl::string_view what, absl::string_view seen, bool ok) {
  Row(what, std::string(seen), "", ok);
}

void Table::Row(absl::string_view what, const std::string& seen,
                const std::string& bar, bool ok) {
  absl::PrintF("  %-58s %14s  %-12s %s\n", what, seen, bar,
               ok ? "ok" : "MISSED");
  std::fflush(stdout);
  misses_ += !ok;
}

}  // namespace attnd::bench
