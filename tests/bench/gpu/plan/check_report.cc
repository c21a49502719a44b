#include "tests/bench/gpu/plan/check_report.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kMostRegret = 1.05;
constexpr double kLeastPart = 0.8, kMostPart = 1.25;  // predicted / measured
constexpr double kClearly = 1.02;
constexpr int kLeastWinners = 3;
// Runs of less than that are not judged: they are the host's, whose threads
// take the same steps now in 0.1 and now in 0.2 ms, so that one run of this
// program finds 1.0 ms where the next finds 0.8. Nor are predictions of what is
// further behind, which is never chosen.
constexpr double kLeastJudged = 1e-3, kFarFromQuickest = 1.5;

bool IsJudged(const CheckSide& side, const CheckRow& row) {
  return side.is_forced && side.was_run() && side.median() >= kLeastJudged &&
         side.median() <= kFarFromQuickest * row.quickest().median();
}

bool IsOutside(const CheckSide& side) {
  const double part = side.predicted_part();
  return !(part >= kLeastPart && part <= kMostPart);
}

const char* Held(bool held) { return held ? "held" : "MISSED"; }

double Least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}
double Most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

// Measured and predicted milliseconds, and the second in parts of the first.
std::string Cell(const CheckSide* side) {
  if (side == nullptr) return "no plan";
  const double predicted = 1e3 * side->predicted_seconds;
  if (!side->was_run()) return absl::StrFormat("not run %8.3f     ", predicted);
  return absl::StrFormat("%s%8.3f %8.3f %4.2f", side->is_right ? "" : "WRONG ",
                         1e3 * side->median(), predicted,
                         side->predicted_part());
}

bool IsClearWin(const CheckRow& row) {
  const CheckSide* second = row.second();
  return second == nullptr ||
         second->median() > kClearly * row.quickest().median();
}

// Whether no run of another kind was as quick as the quickest one's median.
bool IsAloneWithinNoise(const CheckRow& row) {
  const CheckSide& best = row.quickest();
  return std::all_of(
      row.sides.begin(), row.sides.end(), [&](const CheckSide& side) {
        return !side.is_forced || !side.was_run() || &side == &best ||
               Least(side.seconds) > best.median();
      });
}

// By device.
std::vector<double> Medians(const std::vector<std::vector<double>>& by_run) {
  std::vector<double> medians;
  for (size_t device = 0; device < by_run.front().size(); ++device) {
    std::vector<double> seconds;
    for (const std::vector<double>& run : by_run) {
      seconds.push_back(run[device]);
    }
    medians.push_back(Median(std::move(seconds)));
  }
  return medians;
}

template <class Value>
void Append(std::vector<Value>& to, const std::vector<Value>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::string Json(const CheckSide& side) {
  std::string measured;
  if (side.was_run()) {
    measured = absl::StrFormat(
        "\"ms\": %.5f, \"least_ms\": %.5f, \"most_ms\": %.5f, \"runs\": %d, "
        "\"kernel_ms\": [%s], \"enqueue_ms\": %.5f, ",
        1e3 * side.median(), 1e3 * Least(side.seconds),
        1e3 * Most(side.seconds), side.seconds.size(),
        absl::StrJoin(Medians(side.kernel_seconds), ", ",
                      [](std::string* out, double seconds) {
                        absl::StrAppendFormat(out, "%.5f", 1e3 * seconds);
                      }),
        1e3 * Median(side.enqueue_seconds));
  }
  return absl::StrFormat(
      "{\"plan\": \"%s\", \"forced\": %s, \"auto\": %s, \"run\": %s, "
      "%s\"predicted_ms\": %.5f, \"flops\": %.6g, \"sections\": %d, "
      "\"steps\": %d, \"pulls\": %d, \"pulled_bytes\": %d, \"right\": %s, "
      "\"check\": \"%s\"}",
      PlanName(side.kind), side.is_forced ? "true" : "false",
      side.is_auto ? "true" : "false", side.was_run() ? "true" : "false",
      measured, 1e3 * side.predicted_seconds, side.flops, side.sections,
      side.steps, side.pulls, side.pulled_bytes,
      side.is_right ? "true" : "false", side.check);
}

}  // namespace

double CheckSide::median() const { return Median(seconds); }

void CheckSide::Join(const CheckSide& more) {
  Append(seconds, more.seconds);
  Append(enqueue_seconds, more.enqueue_seconds);
  Append(kernel_seconds, more.kernel_seconds);
  is_right &= more.is_right;
  if (!more.is_right) check = more.check;
}

bool CheckRow::has_regret() const {
  return regret() > kMostRegret && quickest().median() >= kLeastJudged;
}

bool CheckRow::misses() const {
  return has_regret() ||
         std::any_of(sides.begin(), sides.end(), [&](const CheckSide& side) {
           return IsJudged(side, *this) && IsOutside(side);
         });
}

void CheckRow::Join(const CheckRow& more) {
  for (size_t i = 0; i < sides.size(); ++i) sides[i].Join(more.sides[i]);
}

const CheckSide& CheckRow::chosen() const {
  return *std::find_if(sides.begin(), sides.end(),
                       [](const CheckSide& side) { return side.is_auto; });
}

const CheckSide& CheckRow::quickest() const {
  const CheckSide* best = nullptr;
  for (const CheckSide& side : sides) {
    if (!side.is_forced || !side.was_run()) continue;
    if (best == nullptr || side.median() < best->median()) best = &side;
  }
  return *best;
}

const CheckSide* CheckRow::second() const {
  const CheckSide *best = &quickest(), *second = nullptr;
  for (const CheckSide& side : sides) {
    if (!side.is_forced || !side.was_run() || &side == best) continue;
    if (second == nullptr || side.median() < second->median()) second = &side;
  }
  return second;
}

const CheckSide* CheckRow::Find(PlanKind kind) const {
  const auto found =
      std::find_if(sides.begin(), sides.end(), [&](const CheckSide& side) {
        return side.is_forced && side.kind == kind;
      });
  return found == sides.end() ? nullptr : &*found;
}

double CheckRow::regret() const {
  return chosen().median() / quickest().median();
}

bool CheckRow::is_right() const {
  return std::all_of(sides.begin(), sides.end(),
                     [](const CheckSide& side) { return side.is_right; });
}

CheckReport::CheckReport(std::string devices, bool deterministic,
                         const std::string& json)
    : devices_(std::move(devices)), deterministic_(deterministic) {
  if (json.empty()) return;
  file_.open(json);
  if (!file_)
    Require(absl::InvalidArgumentError(absl::StrCat("--json=", json)));
}

void CheckReport::PrintHead() {
  absl::PrintF("%3s %-62s %22s", "",
               "case; ms: measured, predicted, part of it", "one device");
  for (const PlanKind kind : kForcedKinds) {
    absl::PrintF(" %22s", PlanName(kind));
  }
  absl::PrintF("  %-7s %6s  %s\n", "auto", "regret",
               "quickest: least, median, most");
}

void CheckReport::Add(CheckRow row) {
  Show(row);
  rows_.push_back(std::move(row));
}

void CheckReport::AddAgain(const CheckRow& more) {
  CheckRow& row =
      *std::find_if(rows_.begin(), rows_.end(), [&](const CheckRow& before) {
        return before.one.number == more.one.number;
      });
  row.Join(more);
  Show(row);
}

std::vector<CheckCase> CheckReport::Missing() const {
  std::vector<CheckCase> missing;
  for (const CheckRow& row : rows_) {
    if (row.misses()) missing.push_back(row.one);
  }
  return missing;
}

void CheckReport::Show(const CheckRow& row) {
  absl::PrintF("%3d %-62s %22s", row.one.number, row.one.name(),
               Cell(&row.alone()));
  for (const PlanKind kind : kForcedKinds) {
    absl::PrintF(" %22s", Cell(row.Find(kind)));
  }
  const CheckSide& best = row.quickest();
  absl::PrintF("  %-7s %6.3f  %s: %.3f %.3f %.3f\n",
               PlanName(row.chosen().kind), row.regret(), PlanName(best.kind),
               1e3 * Least(best.seconds), 1e3 * best.median(),
               1e3 * Most(best.seconds));
  for (const CheckSide& side : row.sides) {
    if (side.is_auto && !side.is_forced) {
      absl::PrintF("    auto alone has this plan: %s, %s\n", Cell(&side),
                   side.why);
    }
    if (side.is_right) continue;
    absl::PrintF("    WRONG: %s: %s\n", PlanName(side.kind), side.check);
  }
  std::fflush(stdout);
  if (file_.is_open()) file_ << Json(row) << std::endl;
}

bool CheckReport::Finish() const {
  absl::PrintF("\n");
  if (rows_.empty()) return true;
  bool held = PrintRegret();
  held &= PrintPredicted();
  held &= PrintWins();
  PrintAlone();
  if (!file_.is_open()) {
    for (const CheckRow& row : rows_) absl::PrintF("%s\n", Json(row));
  }
  return held;
}

bool CheckReport::AreAllRight() const {
  return std::all_of(rows_.begin(), rows_.end(),
                     [](const CheckRow& row) { return row.is_right(); });
}

bool CheckReport::PrintRegret() const {
  const CheckRow* worst = nullptr;
  int judged = 0, missed = 0;
  for (const CheckRow& row : rows_) {
    const bool counts = row.quickest().median() >= kLeastJudged;
    if (counts && (worst == nullptr || row.regret() > worst->regret())) {
      worst = &row;
    }
    judged += counts;
    missed += row.has_regret();
    if (row.regret() <= kMostRegret) continue;
    absl::PrintF("regret %.3f%s: %d %s: auto takes %s, %s is the quickest\n",
                 row.regret(), counts ? "" : ", too short to count",
                 row.one.number, row.one.name(), PlanName(row.chosen().kind),
                 PlanName(row.quickest().kind));
  }
  if (worst == nullptr) return true;
  absl::PrintF(
      "largest regret %.3f (%d %s), %d of %d cases of %.1f ms and more over "
      "%.2f: %s\n\n",
      worst->regret(), worst->one.number, worst->one.name(), missed, judged,
      1e3 * kLeastJudged, kMostRegret, Held(missed == 0));
  return missed == 0;
}

bool CheckReport::PrintPredicted() const {
  bool all_held = true;
  absl::PrintF(
      "predicted / measured; judged, %.2f to %.2f: what takes %.1f ms or more, "
      "and no longer than %.1f x the quickest\n",
      kLeastPart, kMostPart, 1e3 * kLeastJudged, kFarFromQuickest);
  absl::PrintF("%-10s %5s %5s %6s %5s %7s  %s\n", "plan", "cases", "least",
               "median", "most", "outside", "judged");
  const auto print = [&](PlanKind kind, bool is_judged) {
    std::vector<double> parts;
    int64_t outside = 0, judged = 0, missed = 0;
    for (const CheckRow& row : rows_) {
      const CheckSide* side =
          kind == PlanKind::kOneDevice ? &row.alone() : row.Find(kind);
      if (side == nullptr || !side->was_run()) continue;
      parts.push_back(side->predicted_part());
      const bool is_outside = IsOutside(*side);
      const bool counts = is_judged && IsJudged(*side, row);
      outside += is_outside;
      judged += counts;
      missed += counts && is_outside;
    }
    if (parts.empty()) return;
    absl::PrintF("%-10s %5d %5.2f %6.2f %5.2f %7d", PlanName(kind),
                 parts.size(), Least(parts), Median(parts), Most(parts),
                 outside);
    if (is_judged) {
      absl::PrintF("  %d of %d: %s", missed, judged, Held(missed == 0));
    }
    absl::PrintF("\n");
    all_held &= missed == 0;
  };
  print(PlanKind::kOneDevice, false);
  for (const PlanKind kind : kForcedKinds) print(kind, true);
  absl::PrintF("\n");
  return all_held;
}

bool CheckReport::PrintWins() const {
  int winners = 0;
  absl::PrintF("%-10s %8s %9s %22s %9s\n", "plan", "quickest", "by > 2 %",
               "alone within the noise", "of auto");
  for (const PlanKind kind : kForcedKinds) {
    int quickest = 0, clear = 0, alone = 0, wins = 0, chosen = 0;
    for (const CheckRow& row : rows_) {
      chosen += row.chosen().kind == kind;
      if (row.quickest().kind != kind) continue;
      const bool is_clear = IsClearWin(row), is_alone = IsAloneWithinNoise(row);
      ++quickest;
      clear += is_clear;
      alone += is_alone;
      wins += is_clear || is_alone;
    }
    winners += wins > 0;
    absl::PrintF("%-10s %8d %9d %22d %9d\n", PlanName(kind), quickest, clear,
                 alone, chosen);
  }
  const bool held = winners >= kLeastWinners;
  absl::PrintF("kinds that win somewhere: %d, at least %d: %s\n\n", winners,
               kLeastWinners, Held(held));
  return held;
}

void CheckReport::PrintAlone() const {
  int quicker = 0;
  std::vector<double> gains;
  for (const CheckRow& row : rows_) {
    gains.push_back(row.alone().median() / row.chosen().median());
    if (gains.back() > 1) ++quicker;
  }
  absl::PrintF(
      "auto is quicker than one device in %d of %d cases: %.2f to %.2f times "
      "as quick, median %.2f\n\n",
      quicker, rows_.size(), Least(gains), Most(gains), Median(gains));
}

std::string CheckReport::Json(const CheckRow& row) const {
  const Shape& shape = row.one.shape;
  return absl::StrFormat(
      "{\"check\": %d, \"devices\": \"%s\", \"deterministic\": %s, "
      "\"case\": \"%s\", \"op\": \"%s\", \"inputs\": \"%s\", \"batch\": %d, "
      "\"q_len\": %d, \"kv_len\": %d, \"lens\": [%s], \"q_heads\": %d, "
      "\"kv_heads\": %d, \"dim\": %d, \"causal\": %s, \"left\": %d, "
      "\"auto\": \"%s\", \"why\": \"%s\", \"quickest\": \"%s\", "
      "\"regret\": %.4f, \"sides\": [%s]}",
      row.one.number, devices_, deterministic_ ? "true" : "false",
      row.one.name(), OpName(row.one.op), InputsName(row.one.inputs),
      shape.batch, shape.len, shape.columns(), absl::StrJoin(shape.lens, ", "),
      shape.q_heads, shape.kv_heads, shape.dim, shape.causal ? "true" : "false",
      shape.left, PlanName(row.chosen().kind), row.chosen().why,
      PlanName(row.quickest().kind), row.regret(),
      absl::StrJoin(row.sides, ", ",
                    [](std::string* out, const CheckSide& side) {
                      out->append(bench::Json(side));
                    }));
}

}  // namespace attnd::bench
