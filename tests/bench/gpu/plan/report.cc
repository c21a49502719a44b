#include "tests/bench/gpu/plan/report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attnd::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMostOfNeed = 1.1;

std::string BaseText(const PlanRow& row) {
  std::string text;
  for (double seconds : row.base_seconds) {
    absl::StrAppendFormat(&text, "%s%.3f", text.empty() ? "" : "/",
                          1e3 * seconds);
  }
  return text;
}

std::string Json(const PlanRow& row) {
  std::string base;
  for (double seconds : row.base_seconds) {
    absl::StrAppendFormat(&base, "%s%.4f", base.empty() ? "" : ", ",
                          1e3 * seconds);
  }
  const Shape& shape = row.shape;
  return absl::StrFormat(
      "{\"section\": \"%s\", \"batch\": %d, \"len\": %d, \"q_heads\": %d, "
      "\"kv_heads\": %d, \"dim\": %d, \"causal\": %s, \"left\": %d, "
      "\"op\": \"%s\", \"plan\": \"%s\", \"sections\": %d, \"ms\": %.4f, "
      "\"base_ms\": [%s], \"percent\": %.2f, \"tflops\": %.1f, "
      "\"pulled_bytes\": %d, \"pulls\": %d, \"planned_bytes\": %d, "
      "\"predicted_ms\": %.4f, \"enqueue_ms\": %.4f, \"right\": %s, "
      "\"check\": \"%s\"}",
      row.wanted.section, shape.batch, shape.len, shape.q_heads, shape.kv_heads,
      shape.dim, shape.causal ? "true" : "false", shape.left, OpName(row.op),
      PlanName(row.wanted.kind), row.sections, 1e3 * row.seconds, base,
      row.percent(), row.tflops(), row.pulled_bytes, row.pulls,
      row.planned_bytes, 1e3 * row.predicted_seconds, 1e3 * row.enqueue_seconds,
      row.is_right ? "true" : "false", row.check);
}

void PrintBar(const PlanRow& row, const std::string& what, double seen,
              double bar, bool held) {
  absl::PrintF("%-7s %-24s %-8s %-7s %-24s %8.2f %8.2f  %s\n",
               row.wanted.section, row.shape.name(), OpName(row.op),
               PlanName(row.wanted.kind), what, seen, bar,
               held ? "held" : "MISSED");
}

bool AreOfOnePlan(const PlanRow& a, const PlanRow& b) {
  return a.wanted.section == b.wanted.section && a.op == b.op &&
         a.shape.name() == b.shape.name();
}

}  // namespace

double PlanRow::base() const {
  return *std::max_element(base_seconds.begin(), base_seconds.end());
}

double PlanRow::percent() const { return 100 * base() / (devices * seconds); }
double PlanRow::tflops() const { return flops / devices / seconds / 1e12; }

void PlanTable::PrintHead() {
  absl::PrintF(
      "%-7s %-24s %-8s %-7s %4s %9s %19s %6s %6s %9s %9s %6s %9s %8s  %s\n",
      "section", "shape", "op", "plan", "sect", "ms", "one device ms", "%",
      "TF/s", "pull MiB", "plan MiB", "pulls", "predicted", "enqueue",
      "results against one device's");
}

void PlanTable::Add(PlanRow row) {
  absl::PrintF(
      "%-7s %-24s %-8s %-7s %4d %9.3f %19s %6.1f %6.0f %9.1f %9.1f %6d %9.3f "
      "%8.3f  %s%s\n",
      row.wanted.section, row.shape.name(), OpName(row.op),
      PlanName(row.wanted.kind), row.sections, 1e3 * row.seconds, BaseText(row),
      row.percent(), row.tflops(), static_cast<double>(row.pulled_bytes) / kMiB,
      static_cast<double>(row.planned_bytes) / kMiB, row.pulls,
      1e3 * row.predicted_seconds, 1e3 * row.enqueue_seconds,
      row.is_right ? "" : "WRONG: ", row.check);
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

bool PlanTable::Finish(const std::string& device, bool deterministic) const {
  PrintBars();
  PrintJson(device, deterministic);
  return std::all_of(rows_.begin(), rows_.end(),
                     [](const PlanRow& row) { return row.is_right; });
}

void PlanTable::PrintJson(const std::string& device, bool deterministic) const {
  std::string rows;
  for (const PlanRow& row : rows_) {
    absl::StrAppend(&rows, rows.empty() ? "" : ", ", Json(row));
  }
  absl::PrintF(
      "{\"plan_bench\": {\"device\": \"%s\", \"deterministic\": %s, "
      "\"rows\": [%s]}}\n",
      device, deterministic ? "true" : "false", rows.c_str());
}

void PlanTable::PrintBars() const {
  absl::PrintF("\n%-7s %-24s %-8s %-7s %-24s %8s %8s\n", "section", "shape",
               "op", "plan", "what", "seen", "bar");
  std::vector<const PlanRow*> best;
  for (const PlanRow& row : rows_) {
    const auto known = std::find_if(
        best.begin(), best.end(),
        [&](const PlanRow* other) { return AreOfOnePlan(*other, row); });
    if (known == best.end()) {
      best.push_back(&row);
    } else if (row.percent() > (*known)->percent()) {
      *known = &row;
    }
  }
  for (const PlanRow* row : best) {
    if (const auto& bar = row->wanted.bar(row->op)) {
      PrintBar(*row, "% of one device's speed", row->percent(), *bar,
               row->percent() >= *bar);
    }
    if (const auto need = row->shape.NeededBytes(row->op, row->devices)) {
      const double part = static_cast<double>(row->pulled_bytes) /
                          static_cast<double>(std::max<int64_t>(*need, 1));
      PrintBar(*row, "pulled bytes / needed", part, kMostOfNeed,
               part <= kMostOfNeed);
    }
  }
  absl::PrintF("\n");
}

}  // namespace attnd::bench
