#include "server/admin/statusz_page.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/admin/html.h"

namespace attnd::server {
namespace {

constexpr absl::string_view kStyle =
    "body{font:14px/1.4 system-ui,sans-serif;margin:1.5em;color:#222}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin:1.6em 0 .4em}"
    "table{border-collapse:collapse}"
    "th,td{border:1px solid #ccc;padding:.25em .6em;text-align:left;"
    "vertical-align:top}"
    "th{background:#f3f3f3;font-weight:600}"
    "td{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}";

std::string Bytes(int64_t bytes) {
  if (bytes < (int64_t{1} << 20)) return absl::StrCat(bytes, " B");
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  if (mebibytes < 10240) return absl::StrFormat("%.1f MiB", mebibytes);
  return absl::StrFormat("%.1f GiB", mebibytes / 1024);
}

std::string Of(const std::string& part, const std::string& whole) {
  return absl::StrCat(part, " of ", whole);
}

// To the precision that a person reads.
std::string Time(absl::Duration time) {
  const absl::Duration unit = time >= absl::Seconds(10) ? absl::Seconds(1)
                              : time >= absl::Milliseconds(10)
                                  ? absl::Milliseconds(1)
                                  : absl::Microseconds(1);
  return absl::FormatDuration(absl::Trunc(time, unit));
}

std::string TimeOfDay(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string Head(const ServerStatus& status, absl::Time time) {
  HtmlList list;
  list.Add("health", status.health);
  list.Add("version", status.info.version());
  list.Add("built with", status.build);
  list.Add("instance", status.info.server_instance_id());
  list.Add("started", absl::StrCat(TimeOfDay(time - status.uptime), ", ",
                                   Time(status.uptime), " ago"));
  list.Add("this page", TimeOfDay(time));
  return list.Html();
}

std::string Devices(const ServerStatus& status) {
  HtmlTable table({"device", "model", "in service", "lanes busy",
                   "longest group now", "lanes busy since the start",
                   "in use now", "memory in use"});
  const SchedulerStats& scheduler = status.stats.scheduler;
  for (size_t i = 0; i < status.facts.devices.size(); ++i) {
    std::vector<std::string> row = {status.facts.devices[i].label,
                                    status.facts.devices[i].model};
    const bool known = i < scheduler.device_in_service.size();
    row.push_back(known && scheduler.device_in_service[i] ? "yes" : "NO");
    if (i < scheduler.lanes.size()) {
      const LaneStats& lanes = scheduler.lanes[i];
      const absl::Duration most = status.uptime * lanes.lanes;
      row.push_back(Of(absl::StrCat(lanes.busy), absl::StrCat(lanes.lanes)));
      row.push_back(lanes.busy > 0 ? Time(lanes.longest) : "");
      row.push_back(absl::StrFormat(
          "%s, %.1f %%", Time(lanes.busy_time),
          100 * absl::FDivDuration(lanes.busy_time,
                                   std::max(most, absl::Nanoseconds(1)))));
    } else {
      row.insert(row.end(), {"", "", ""});
    }
    if (i < status.stats.usage.size() && status.stats.usage[i].has_value()) {
      const DeviceUsage& usage = *status.stats.usage[i];
      row.push_back(usage.utilization.has_value()
                        ? absl::StrFormat("%.0f %%", 100 * *usage.utilization)
                        : "");
      row.push_back(
          Of(Bytes(usage.memory_used_bytes), Bytes(usage.memory_total_bytes)));
    } else {
      row.insert(row.end(), {"", ""});
    }
    table.Row(row);
  }
  return table.Html("There is no device.");
}

std::string Queue(const ServerStatus& status) {
  const SchedulerStats& scheduler = status.stats.scheduler;
  HtmlList list;
  list.Add("requests that wait",
           Of(absl::StrCat(scheduler.queued_requests),
              absl::StrCat(status.facts.max_queue_requests)));
  list.Add("the longest has waited", Time(scheduler.queued_longest));
  list.Add("work that waits",
           absl::StrFormat("%.3g of %.3g FLOP", scheduler.queued_flops,
                           status.facts.max_queue_flops));
  list.Add("requests that run", absl::StrCat(scheduler.running_requests));
  list.Add("draining", scheduler.draining ? "yes" : "no");
  return list.Html();
}

std::string Memory(const ServerStatus& status) {
  const ServerStats& stats = status.stats;
  HtmlList list;
  list.Add("admitted requests", Of(Bytes(stats.scheduler.account_bytes),
                                   Bytes(stats.scheduler.account_limit_bytes)));
  list.Add("messages that arrive",
           absl::StrCat(Of(Bytes(stats.uploads.reserved_bytes),
                           Bytes(stats.uploads.limit_bytes)),
                        "; ", stats.uploads.waiting, " wait, ",
                        stats.uploads.refused, " refused"));
  list.Add("regions leased",
           Of(Bytes(stats.regions.leased_bytes),
              Bytes(stats.regions.leased_bytes + stats.regions.free_bytes)));
  list.Add("regions imported", Bytes(stats.regions.imported_bytes));
  list.Add("--memory_limit", Bytes(status.facts.memory_limit_bytes));
  return list.Html();
}

std::string Connections(const ServerStatus& status) {
  const ConnectionStats& connections = status.stats.connections;
  const GateStats& gate = status.stats.gate;
  int64_t refused = 0, cut = 0;
  for (const int64_t count : connections.refused) refused += count;
  for (const auto& [code, count] : gate.cut) cut += count;
  HtmlList list;
  list.Add("open", Of(absl::StrCat(connections.open),
                      absl::StrCat(status.facts.max_connections)));
  list.Add("since the start",
           absl::StrCat(connections.accepted, " taken in, ", refused,
                        " refused, ", cut, " ended for breaking the rules"));
  list.Add("TLS handshakes",
           absl::StrCat(gate.tls_handshakes, " done, ",
                        gate.tls_handshakes_failed, " failed"));
  if (gate.certificate_end.has_value()) {
    list.Add("certificate ends", TimeOfDay(*gate.certificate_end));
  }
  if (gate.tls_files_good.has_value()) {
    list.Add("TLS files", *gate.tls_files_good ? "good" : "NOT GOOD");
  }
  if (status.stats.token_file_good.has_value()) {
    list.Add("token file", *status.stats.token_file_good ? "good" : "NOT GOOD");
  }
  return list.Html();
}

std::string Refusals(const ServerStatus& status) {
  HtmlTable table({"calls refused, by why", "since the start"});
  for (int i = 0; i < kCallRefusals; ++i) {
    if (status.refused[i] == 0) continue;
    table.Row(
        {NameOf(static_cast<CallRefusal>(i)), absl::StrCat(status.refused[i])});
  }
  return table.Html("No call was refused.");
}

std::string Ago(const ServerStatus& status, const CallLog::Ended& ended) {
  return absl::StrCat(Time(status.now - ended.at), " ago");
}

std::string Ids(const CallRecord& call) {
  if (!call.ids.parent().has_value()) return call.ids.request_id();
  return absl::StrCat(call.ids.request_id(), " in trace ",
                      wire::TraceIdOf(*call.ids.parent()));
}

std::string Failures(const ServerStatus& status) {
  HtmlTable table(
      {"ended", "method", "code", "why", "request", "client", "shape", "took"});
  for (const CallLog::Ended& ended : status.calls.failed) {
    const CallRecord& call = ended.call;
    table.Row({Ago(status, ended), NameOf(call.method),
               absl::StatusCodeToString(call.code),
               call.code == call.status.code()
                   ? std::string(call.status.message())
                   : "the client gave up",
               Ids(call), call.client, ended.shape, Time(call.total)});
  }
  return table.Html("No call has failed.");
}

std::string Slowest(const ServerStatus& status) {
  HtmlTable table({"ended", "method", "took", "receive", "queue", "upload",
                   "compute", "download", "batch", "device", "request",
                   "client", "shape"});
  for (const CallLog::Ended& ended : status.calls.slowest) {
    const CallRecord& call = ended.call;
    std::vector<std::string> row = {Ago(status, ended), NameOf(call.method),
                                    Time(call.total)};
    if (call.run.has_value()) {
      const Phases& p = call.run->phases;
      row.insert(row.end(),
                 {Time(p.receive), Time(p.queue), Time(p.upload),
                  Time(p.compute), Time(p.download),
                  absl::StrCat(call.run->batch_requests), call.run->device});
    } else {
      row.insert(row.end(), 7, "");
    }
    row.insert(row.end(), {Ids(call), call.client, ended.shape});
    table.Row(row);
  }
  return table.Html("No call has ended of late.");
}

}  // namespace

std::string StatuszHtml(const ServerStatus& status, absl::Time time) {
  std::string page = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
      "<title>attnd: ", EscapeHtml(status.health), "</title>\n<style>", kStyle,
      "</style>\n</head>\n<body>\n<h1>attnd</h1>\n");
  const std::pair<absl::string_view, std::string> sections[] = {
      {"Server", Head(status, time)},
      {"Devices", Devices(status)},
      {"Queue", Queue(status)},
      {"Memory", Memory(status)},
      {"Connections", Connections(status)},
      {"Refusals", Refusals(status)},
      {"The last calls that failed", Failures(status)},
      {"The slowest calls of the last ten minutes", Slowest(status)}};
  for (const auto& [title, html] : sections) {
    absl::StrAppend(&page, "<h2>", title, "</h2>\n", html);
  }
  absl::StrAppend(&page,
                  "<p>More: <a href=\"/status\">/status</a> (JSON), "
                  "<a href=\"/metrics\">/metrics</a>, "
                  "<a href=\"/healthz\">/healthz</a>, "
                  "<a href=\"/readyz\">/readyz</a></p>\n</body>\n</html>\n");
  return page;
}

}  // namespace attnd::server
