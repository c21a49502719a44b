#include "client/attnctl/print.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "client/attnctl/flags.h"
#include "client/tensor_size.h"
#include "nlohmann/json.hpp"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

using Json = nlohmann::ordered_json;

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.3f ms", absl::ToDoubleMilliseconds(duration));
}

double Tflops(const Report& report) {
  const double seconds = absl::ToDoubleSeconds(report.compute);
  return seconds > 0 ? report.flops / seconds / 1e12 : 0;
}

// JSON has no infinity.
Json Number(double value) {
  return std::isfinite(value) ? Json(value) : Json("inf");
}

std::string Line(const char* label, const std::string& text) {
  return absl::StrFormat("  %-10s %s\n", label, text);
}

// "stream, 3 streams"; "unary".
std::string TransportText(const Report& report) {
  if (report.transport != TransportKind::kStream) return Name(report.transport);
  return absl::StrCat(Name(report.transport), ", ", report.streams, " stream",
                      report.streams == 1 ? "" : "s");
}

const char* MemoryName(const Request& request) {
  return request.on_device ? "GPU" : "host";
}

// The name of one that this program does not know is for newer ones to say.
const char* PlanName(const PlanReport& plan) {
  return plan.plan == Plan::kAuto ? "unknown" : Name(plan.plan);
}

// "heads on cuda:0 (busy 1.2 ms), cuda:1 (busy 1.1 ms), predicted 1.3 ms", and
// why.
std::string PlanText(const PlanReport& plan) {
  const std::string devices =
      absl::StrJoin(plan.devices, ", ",
                    [](std::string* out, const PlanReport::Device& device) {
                      absl::StrAppend(out, Printable(device.device), " (busy ",
                                      Milliseconds(device.busy), ")");
                    });
  return Line("plan",
              absl::StrCat(PlanName(plan), " on ", devices, ", predicted ",
                           Milliseconds(plan.predicted))) +
         Line("", Printable(plan.why));
}

// Null where no team ran it.
Json PlanJson(const std::optional<PlanReport>& plan) {
  if (!plan.has_value()) return nullptr;
  Json devices = Json::array();
  for (const PlanReport::Device& device : plan->devices) {
    devices.push_back(
        {{"device", device.device},
         {"busy_milliseconds", absl::ToDoubleMilliseconds(device.busy)}});
  }
  return {
      {"name", PlanName(*plan)},
      {"why", plan->why},
      {"devices", devices},
      {"predicted_milliseconds", absl::ToDoubleMilliseconds(plan->predicted)}};
}

// Names may hold any bytes; JSON's strings hold UTF-8, and in ASCII nothing
// that a terminal obeys.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true,
                   Json::error_handler_t::replace) +
         "\n";
}

}  // namespace

bool Agrees(const OutputResult& output, double tolerance) {
  return !output.difference.has_value() ||
         output.difference->relative() <= tolerance;
}

std::string ResultText(const Request& request, const Report& report,
                       double tolerance) {
  std::string text = request.what + "\n";
  for (const OutputResult& output : request.outputs) {
    std::string line = absl::StrCat(ShapeText(output.tensor.shape), " ",
                                    Name(output.tensor.dtype));
    if (!output.path.empty()) absl::StrAppend(&line, ", in ", output.path);
    text += Line(output.name.c_str(), line);
    if (!output.difference.has_value()) continue;
    const Difference& d = *output.difference;
    text += Line(
        "", absl::StrFormat(
                "%s %s: difference at most %.3g (%.3g of the largest value, "
                "element %d), RMS %.3g",
                Agrees(output, tolerance) ? "agrees with" : "DIFFERS from",
                output.expect_path, d.max, d.relative(), d.worst_index, d.rms));
  }
  text += Line("device", Printable(report.device));
  text += Line("kernel", absl::StrCat(Printable(report.kernel), " (",
                                      Name(report.algorithm), "), with ",
                                      report.batch_requests - 1,
                                      " other requests in its batch"));
  if (report.plan.has_value()) text += PlanText(*report.plan);
  text += Line("transport", TransportText(report));
  if (request.leased_bytes > 0) {
    text += Line("region", absl::StrCat(request.leased_bytes, " bytes of ",
                                        MemoryName(request), " memory"));
  }
  if (!report.fallback.empty()) {
    text += Line("fallback", Printable(report.fallback));
  }
  text += Line("server",
               absl::StrCat("receive ", Milliseconds(report.receive),
                            ", queue ", Milliseconds(report.queue), ", upload ",
                            Milliseconds(report.upload), ", compute ",
                            Milliseconds(report.compute), ", download ",
                            Milliseconds(report.download)));
  text += Line("total",
               absl::StrCat(Milliseconds(report.total), ", ", report.attempts,
                            " attempt", report.attempts == 1 ? "" : "s"));
  text += Line("speed", absl::StrFormat("%.4g TFLOP/s (%.4g GFLOP in compute)",
                                        Tflops(report), report.flops / 1e9));
  return text;
}

std::string ResultJson(const Request& request, const Report& report,
                       double tolerance) {
  Json outputs = Json::object();
  for (const OutputResult& output : request.outputs) {
    Json& entry = outputs[output.name];
    entry["shape"] = output.tensor.shape;
    entry["dtype"] = Name(output.tensor.dtype);
    if (!output.path.empty()) entry["file"] = output.path;
    if (!output.difference.has_value()) continue;
    const Difference& d = *output.difference;
    entry["expected"] = output.expect_path;
    entry["max_difference"] = Number(d.max);
    entry["relative_difference"] = Number(d.relative());
    entry["rms_difference"] = Number(d.rms);
    entry["worst_index"] = d.worst_index;
    entry["agrees"] = Agrees(output, tolerance);
  }
  Json region = nullptr;
  if (request.leased_bytes > 0) {
    region = {{"memory", MemoryName(request)}, {"bytes", request.leased_bytes}};
  }
  return Dump({{"outputs", outputs},
               {"device", report.device},
               {"kernel", report.kernel},
               {"algorithm", Name(report.algorithm)},
               {"plan", PlanJson(report.plan)},
               {"batch_requests", report.batch_requests},
               {"flops", report.flops},
               {"tflops_per_second", Tflops(report)},
               {"attempts", report.attempts},
               {"transport", Name(report.transport)},
               {"region", region},
               {"fallback", report.fallback},
               {"streams", report.streams},
               {"milliseconds",
                {{"receive", absl::ToDoubleMilliseconds(report.receive)},
                 {"queue", absl::ToDoubleMilliseconds(report.queue)},
                 {"upload", absl::ToDoubleMilliseconds(report.upload)},
                 {"compute", absl::ToDoubleMilliseconds(report.compute)},
                 {"download", absl::ToDoubleMilliseconds(report.download)},
                 {"total", absl::ToDoubleMilliseconds(report.total)}}}});
}

std::string InfoText(const ServerInfo& info) {
  std::string text =
      absl::StrCat("attnd ", Printable(info.version), ", instance ",
                   Printable(info.server_instance_id), "\n");
  for (const Device& device : info.devices) {
    text += Line("device",
                 absl::StrCat(Printable(device.kind), ":", device.index, " ",
                              Printable(device.name), ", ",
                              device.memory_bytes >> 20, " MiB, ",
                              device.in_service ? "in" : "OUT OF", " service"));
  }
  text += Line("features", info.features.empty()
                               ? "none beyond attn.v1"
                               : Printable(absl::StrJoin(info.features, ", ")));
  text += Line("message", absl::StrCat(info.max_message_bytes, " bytes"));
  text += Line("memory", absl::StrCat(info.memory_limit_bytes, " bytes"));
  text += Line("queue",
               absl::StrFormat("%d requests, %.4g FLOP",
                               info.max_queue_requests, info.max_queue_flops));
  text +=
      Line("request", absl::StrFormat("%.4g FLOP, head_dim %d, %d sequences",
                                      info.max_request_flops, info.max_head_dim,
                                      info.max_request_sequences));
  text += Line("chunk", absl::StrCat(info.preferred_chunk_bytes, " bytes"));
  text += Line("streams", absl::StrCat(info.max_transfer_streams));
  text +=
      Line("regions", info.region_bytes == 0
                          ? "none of host memory"
                          : absl::StrCat(info.region_bytes, " bytes at most"));
  return text;
}

std::string InfoJson(const ServerInfo& info) {
  Json devices = Json::array();
  for (const Device& device : info.devices) {
    devices.push_back({{"kind", device.kind},
                       {"index", device.index},
                       {"name", device.name},
                       {"memory_bytes", device.memory_bytes},
                       {"in_service", device.in_service}});
  }
  return Dump({{"server_instance_id", info.server_instance_id},
               {"version", info.version},
               {"features", info.features},
               {"devices", devices},
               {"max_message_bytes", info.max_message_bytes},
               {"memory_limit_bytes", info.memory_limit_bytes},
               {"max_queue_requests", info.max_queue_requests},
               {"max_queue_flops", info.max_queue_flops},
               {"max_request_flops", info.max_request_flops},
               {"max_head_dim", info.max_head_dim},
               {"max_request_sequences", info.max_request_sequences},
               {"max_transfer_streams", info.max_transfer_streams},
               {"preferred_chunk_bytes", info.preferred_chunk_bytes},
               {"region_bytes", info.region_bytes}});
}

std::string ErrorText(const absl::Status& status, bool from_call) {
  const auto shown = [from_call](absl::string_view text) {
    return from_call ? Printable(text) : std::string(text);
  };
  std::string text =
      absl::StrCat("attnctl: ", absl::StatusCodeToString(status.code()), ": ",
                   shown(status.message()), "\n");
  for (const wire::FieldViolation& v : wire::FieldViolations(status)) {
    const std::string line = absl::StrCat(v.field, ": ", v.description);
    // A single violation is usually the whole message.
    if (status.message() != line) {
      absl::StrAppend(&text, "  ", shown(line), "\n");
    }
  }
  if (const auto delay = wire::RetryDelay(status)) {
    absl::StrAppend(&text, "  try again in ", absl::FormatDuration(*delay),
                    "\n");
  }
  if (const std::string id = wire::RequestId(status); !id.empty()) {
    absl::StrAppend(&text, "  request id ", id, "\n");
  }
  return text;
}

std::string ErrorJson(const absl::Status& status) {
  Json violations = Json::array();
  for (const wire::FieldViolation& v : wire::FieldViolations(status)) {
    violations.push_back({{"field", v.field}, {"description", v.description}});
  }
  return Dump({{"error",
                {{"code", absl::StatusCodeToString(status.code())},
                 {"message", std::string(status.message())},
                 {"field_violations", violations},
                 {"request_id", wire::RequestId(status)}}}});
}

}  // namespace attnd::client
