#include "tests/bench/service/section.h"

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

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "service_bench: %s\n", status.ToString().c_str());
  std::exit(2);
}

std::unique_ptr<testing::ServerProcess> StartAttnd(
    const std::vector<std::string>& flags, int log) {
  return Get(testing::ServerProcess::Start(ATTND_BINARY, flags, log));
}

}  // namespace attnd::bench
