#include "client/attnload/report.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"

namespace attnd::attnload {
namespace {

double Ms(absl::Duration d) { return absl::ToDoubleMilliseconds(d); }

std::string LevelName(bool open_loop, double level) {
  return open_loop ? absl::StrFormat("%g/s", level)
                   : absl::StrFormat("%g at once", level);
}

// The mean over answered requests.
absl::Duration Mean(const Results& r, absl::Duration sum) {
  return r.ok == 0 ? absl::ZeroDuration() : sum / r.ok;
}

constexpr char kHead[] =
    "%-14s %9s %8s %8s %8s %8s %8s %8s %7s %8s %8s %8s %8s %6s %7s\n";
constexpr char kRow[] =
    "%-14s %9.1f %8.2f %8.2f %8.2f %8.2f %8.2f %8.3f %7.2f %8.2f %8.2f %8.2f "
    "%8.2f %6.1f %7d\n";

void AppendLevel(const LevelResults& level, std::string& out) {
  const Results& r = level.results;
  const auto quantile = [&r](double share) {
    return Ms(r.latency.Quantile(share));
  };
  absl::StrAppendFormat(
      &out, kRow, LevelName(level.open_loop, level.level),
      r.PerSecond(double(r.ok)), quantile(0.5), quantile(0.9), quantile(0.99),
      quantile(0.999), Ms(r.latency.max()), r.PerSecond(r.flops()) / 1e12,
      r.PerSecond(r.bytes()) / 1e9, Ms(Mean(r, r.queue)), Ms(Mean(r, r.upload)),
      Ms(Mean(r, r.compute)), Ms(Mean(r, r.download)),
      r.ok == 0 ? 0 : r.batch_requests / double(r.ok), r.failed);
}

// "heads 12, gather 3": how many of each; empty: a team ran none.
std::string PlansText(const std::map<client::Plan, int64_t>& plans) {
  return absl::StrJoin(plans, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, Name(entry.first), " ", entry.second);
  });
}

nlohmann::json JsonOf(const std::map<client::Plan, int64_t>& plans) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [plan, n] : plans) json[Name(plan)] = n;
  return json;
}

void AppendShapes(const std::vector<Shape>& shapes, const LevelResults& level,
                  std::string& out) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Histogram& latency = level.results.shapes[i].latency;
    const std::string plans = PlansText(level.results.shapes[i].plans);
    absl::StrAppendFormat(&out, "  %-12s %-44s %8d  p50 %.2f  p99 %.2f%s%s\n",
                          LevelName(level.open_loop, level.level),
                          shapes[i].name, latency.count(),
                          Ms(latency.Quantile(0.5)), Ms(latency.Quantile(0.99)),
                          plans.empty() ? "" : "  ", plans);
  }
}

const char* MemoryName(const LeasedRegions& regions) {
  return regions.on_device ? "GPU" : "host";
}

// How requests went, errors and wrong answers of all levels.
void AppendFindings(const std::vector<LevelResults>& levels,
                    const LeasedRegions& regions, std::string& out) {
  std::map<absl::StatusCode, int64_t> by_code;
  std::map<absl::StatusCode, std::string> first;
  int64_t checked = 0, wrong = 0;
  int64_t ok = 0, streamed = 0, streams = 0, by_region = 0, fallbacks = 0;
  int64_t planned = 0;
  absl::Duration predicted, planned_compute;
  std::map<client::Plan, int64_t> plans;
  std::string fallback;
  RowVerdict rows;
  for (const LevelResults& level : levels) {
    for (const auto& [code, n] : level.results.sent_by_code) by_code[code] += n;
    first.insert(level.results.first_error.begin(),
                 level.results.first_error.end());
    ok += level.results.ok;
    streamed += level.results.streamed;
    streams += level.results.streams;
    by_region += level.results.by_region;
    fallbacks += level.results.fallbacks;
    planned += level.results.planned;
    predicted += level.results.predicted;
    planned_compute += level.results.planned_compute;
    for (const ShapeResults& shape : level.results.shapes) {
      for (const auto& [plan, n] : shape.plans) plans[plan] += n;
    }
    if (fallback.empty()) fallback = level.results.fallback;
    checked += level.results.answers_checked;
    wrong += level.results.answers_wrong;
    rows.Merge(level.results.rows);
  }
  absl::StrAppend(&out, "\nby status code, warm-up included:\n");
  for (const auto& [code, n] : by_code) {
    absl::StrAppendFormat(&out, "  %-20s %8d  %s\n",
                          absl::StatusCodeToString(code), n,
                          Printable(first[code]));
  }
  absl::StrAppendFormat(
      &out, "answered: %d unary, %d in streams (%.1f each), %d by region\n",
      ok - streamed - by_region, streamed,
      streamed == 0 ? 0 : streams / double(streamed), by_region);
  if (planned > 0) {
    absl::StrAppendFormat(&out,
                          "by a team: %s; compute %.3f ms, predicted %.3f ms\n",
                          PlansText(plans), Ms(planned_compute / planned),
                          Ms(predicted / planned));
  }
  if (regions.leases > 0) {
    absl::StrAppendFormat(&out, "regions: %d of %s memory, %d bytes\n",
                          regions.leases, MemoryName(regions), regions.bytes);
  }
  if (fallbacks > 0) {
    absl::StrAppendFormat(&out, "sent although in a region: %d, e.g. %s\n",
                          fallbacks, Printable(fallback));
  }
  absl::StrAppendFormat(&out, "answers checked: %d (%d elements), wrong: %d\n",
                        checked, rows.elements, wrong);
  if (wrong > 0) absl::StrAppendFormat(&out, "  worst %s\n", rows.where);
}

nlohmann::json JsonOf(const Histogram& h) {
  return {{"count", h.count()},
          {"mean_s", absl::ToDoubleSeconds(h.mean())},
          {"p50_s", absl::ToDoubleSeconds(h.Quantile(0.5))},
          {"p90_s", absl::ToDoubleSeconds(h.Quantile(0.9))},
          {"p99_s", absl::ToDoubleSeconds(h.Quantile(0.99))},
          {"p999_s", absl::ToDoubleSeconds(h.Quantile(0.999))},
          {"max_s", absl::ToDoubleSeconds(h.max())}};
}

nlohmann::json JsonOf(const std::vector<Shape>& shapes,
                      const LevelResults& level) {
  const Results& r = level.results;
  const auto mean = [&r](absl::Duration sum) {
    return absl::ToDoubleSeconds(Mean(r, sum));
  };
  const auto planned = [&r](absl::Duration sum) {
    return r.planned == 0 ? 0 : absl::ToDoubleSeconds(sum / r.planned);
  };
  nlohmann::json json = {
      {"loop", level.open_loop ? "open" : "closed"},
      {level.open_loop ? "rate_per_s" : "concurrency", level.level},
      {"elapsed_s", absl::ToDoubleSeconds(r.elapsed)},
      {"ok", r.ok},
      {"failed", r.failed},
      {"requests_per_s", r.PerSecond(double(r.ok))},
      {"tflops", r.PerSecond(r.flops()) / 1e12},
      {"gigabytes_per_s", r.PerSecond(r.bytes()) / 1e9},
      {"latency", JsonOf(r.latency)},
      {"server_mean_s",
       {{"receive", mean(r.receive)},
        {"queue", mean(r.queue)},
        {"upload", mean(r.upload)},
        {"compute", mean(r.compute)},
        {"download", mean(r.download)}}},
      {"mean_batch_requests", r.ok == 0 ? 0 : r.batch_requests / double(r.ok)},
      {"transport",
       {{"unary", r.ok - r.streamed - r.by_region},
        {"stream", r.streamed},
        {"region", r.by_region}}},
      {"fallbacks", r.fallbacks},
      {"fallback", r.fallback},
      {"mean_streams", r.streamed == 0 ? 0 : r.streams / double(r.streamed)},
      {"planned", r.planned},
      {"planned_mean_s",
       {{"compute", planned(r.planned_compute)},
        {"predicted", planned(r.predicted)}}},
      {"in_flight_peak", r.in_flight_peak},
      {"answers_checked", r.answers_checked},
      {"answers_wrong", r.answers_wrong}};
  json["sent"] = r.sent;
  for (const auto& [code, n] : r.sent_by_code) {
    json["sent_by_code"][absl::StatusCodeToString(code)] = n;
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    json["shapes"].push_back({{"shape", shapes[i].name},
                              {"weight", shapes[i].weight},
                              {"plans", JsonOf(r.shapes[i].plans)},
                              {"latency", JsonOf(r.shapes[i].latency)}});
  }
  return json;
}

}  // namespace

std::string ProgressLine(bool open_loop, double level, const Results& results,
                         int64_t in_flight, absl::Duration since) {
  if (results.ok + results.failed == 0) {
    return absl::StrFormat("[%s] %3.0f s  warming up, %d in flight",
                           LevelName(open_loop, level),
                           absl::ToDoubleSeconds(since), in_flight);
  }
  return absl::StrFormat(
      "[%s] %3.0f s  %.1f requests/s  p50 %.2f ms  p99 %.2f ms  %d in flight  "
      "%d failed",
      LevelName(open_loop, level), absl::ToDoubleSeconds(since),
      results.PerSecond(double(results.ok)), Ms(results.latency.Quantile(0.5)),
      Ms(results.latency.Quantile(0.99)), in_flight, results.failed);
}

std::string Table(const std::vector<Shape>& shapes,
                  const std::vector<LevelResults>& levels,
                  const LeasedRegions& regions) {
  std::string out =
      absl::StrFormat(kHead, "load", "req/s", "p50 ms", "p90 ms", "p99 ms",
                      "p99.9 ms", "max ms", "TFLOP/s", "GB/s", "queue",
                      "upload", "compute", "download", "batch", "failed");
  for (const LevelResults& level : levels) AppendLevel(level, out);
  if (shapes.size() > 1) {
    absl::StrAppend(&out, "\nby shape, ms:\n");
    for (const LevelResults& level : levels) AppendShapes(shapes, level, out);
  }
  AppendFindings(levels, regions, out);
  return out;
}

std::string Json(const std::string& target, const std::vector<Shape>& shapes,
                 const std::vector<LevelResults>& levels,
                 const LeasedRegions& regions) {
  nlohmann::json json = {{"target", target}};
  if (regions.leases > 0) {
    json["regions"] = {{"memory", MemoryName(regions)},
                       {"leases", regions.leases},
                       {"bytes", regions.bytes}};
  }
  for (const LevelResults& level : levels) {
    json["levels"].push_back(JsonOf(shapes, level));
  }
  // The target may hold any bytes; JSON's strings hold UTF-8.
  return json.dump(2, ' ', /*ensure_ascii=*/true,
                   nlohmann::json::error_handler_t::replace);
}

}  // namespace attnd::attnload
