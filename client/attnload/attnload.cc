// attnload: puts load on a server and says how it bears it. Flags only; the
// work is in the files beside this one.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "attnd/client.h"
#include "attnd/tls_guard.h"
#include "base/decimal.h"
#include "base/flags.h"
#include "base/printable.h"
#include "client/attnload/load.h"
#include "client/attnload/placed_tensors.h"
#include "client/attnload/range.h"
#include "client/attnload/report.h"
#include "client/attnload/shape.h"
#include "client/credential_flags.h"
#include "client/region_memory.h"
#include "client/whole_file.h"
#include "proto/wire/grpc_process.h"

namespace attnd::attnload {
namespace {

struct Flags {
  std::string target;
  std::string concurrency, rate;
  std::vector<std::string> shapes;
  std::string mix;
  double warm_up_s = 1, duration_s = 10, timeout_s = 60;
  std::string priority = "normal";
  std::string transport = "auto";
  client::TransportFlags regions;
  client::CredentialFlags credentials;
  std::string json;
  int connections = 1;
  int attempts = 1;
  LoadOptions load;
};

// CLI::Range lets NaN through, which is neither below nor above anything.
CLI::Validator Within(double from, double to) {
  CLI::Validator range = CLI::Range(from, to);
  CLI::Validator number(
      [](std::string& text) -> std::string {
        double value = 0;
        return ParseDecimal(text, &value) && std::isnan(value)
                   ? "nan is no number"
                   : "";
      },
      "");
  return range & number;
}

void AddFlags(CLI::App& app, Flags& f) {
  app.add_option("target", f.target, "host:port, or unix:/path")->required();
  app.add_option("--concurrency", f.concurrency,
                 "Closed loop: requests in flight; 8, 1,4,32, 1:16:1 (from, "
                 "to, step) or 1:16:*2 (factor)");
  app.add_option("--rate", f.rate,
                 "Open loop: requests per second at random times, 0.001 to "
                 "1e6, in the same "
                 "form; latency counts from the time due");
  app.add_option("--shape", f.shapes,
                 "What to send, e.g. forward:bf16:b1:s512:h8/2:d128:causal@0.7 "
                 "(see below); may be given several times")
      ->allow_extra_args(false);
  app.add_option("--mix", f.mix, "A file with one --shape a line")
      ->check(CLI::ExistingFile);
  app.add_option("--warmup", f.warm_up_s, "Seconds that do not count")
      ->capture_default_str()
      ->check(Within(0.0, 86400.0));
  app.add_option("--duration", f.duration_s, "Seconds per level")
      ->capture_default_str()
      ->check(Within(0.001, 86400.0));
  app.add_option("--requests", f.load.requests,
                 "Requests per level, instead of --duration")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--timeout", f.timeout_s, "Deadline of each request, seconds")
      ->capture_default_str()
      ->check(Within(0.001, 86400.0));
  app.add_option("--priority", f.priority, "low, normal or high")
      ->capture_default_str()
      ->check(CLI::IsMember({"low", "normal", "high"}));
  app.add_option("--transport", f.transport,
                 "auto, unary or stream: one message each way, or chunks; "
                 "region or device_region: tensors lie in memory that the "
                 "server shares, its own or a GPU's, leased before the load")
      ->capture_default_str()
      ->check(CLI::IsMember(
          {"auto", "unary", "stream", "region", "device_region"}));
  app.add_option("--region_socket", f.regions.region_socket,
                 "For region and device_region: where the server shares memory "
                 "(attnd --region_socket)")
      ->type_name("PATH");
  app.add_option("--gpu", f.regions.gpu,
                 "For device_region: which GPU of this process")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max_in_flight", f.load.max_in_flight,
                 "Open loop: requests due beyond these wait, which counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--connections", f.connections, "TCP connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--attempts", f.attempts,
                 "Tries per request; above 1 the client retries what may pass")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app.add_option("--check", f.load.check_share,
                 "Share of answers of which some rows are recomputed")
      ->capture_default_str()
      ->check(Within(0.0, 1.0));
  app.add_option("--seed", f.load.seed, "Of data, mix and arrival times")
      ->capture_default_str();
  app.add_option("--json", f.json, "Also write results here; - is stdout");
  f.credentials.Add(app, "Security");
  app.footer(
      "A shape is parts joined by ':', in any order, with @weight last:\n"
      "  forward|backward  f32|f16|bf16  bBATCH  sLEN or sQ/KV  hHEADS or "
      "hQ/KV\n"
      "  dDIM or dHEAD/VALUE  causal  wLEFT/RIGHT  det  naive|online|fa1|fa2\n"
      "  one_device|heads|gather|ring|striped|zigzag|kv\n"
      "Left out: forward:f32:b1:s512:h8:d64.\n"
      "SIGINT (Ctrl-C) or SIGTERM: nothing more is sent, what is in flight "
      "ends, and the\n"
      "results so far are printed.\n"
      "Exit status: 0; 1 when an answer is wrong or none came; 2 bad usage, "
      "or results that could not be written.");
}

absl::StatusOr<std::vector<Shape>> ReadShapes(const Flags& flags) {
  std::vector<Shape> shapes;
  if (!flags.mix.empty()) {
    std::ifstream file(flags.mix);
    absl::StatusOr<std::vector<Shape>> mix = ReadMix(file);
    if (!mix.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--mix: ", flags.mix, ": ", mix.status().message()));
    }
    shapes = *std::move(mix);
  }
  for (const std::string& text : flags.shapes) {
    absl::StatusOr<Shape> shape = ParseShape(text);
    if (!shape.ok()) return shape.status();
    shapes.push_back(*std::move(shape));
  }
  if (shapes.empty()) return ParseMix("forward:f32:b1:s512:h8:d64");
  return shapes;
}

absl::Status AddLevels(const char* flag, const std::string& text, bool open,
                       std::vector<LevelResults>& levels) {
  if (text.empty()) return absl::OkStatus();
  const auto refuse = [flag](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
  };
  absl::StatusOr<std::vector<double>> range = ParseRange(text);
  if (!range.ok()) return refuse(range.status().message());
  for (double level : *range) {
    if (!open && (level != std::floor(level) || level > (1 << 20))) {
      return refuse("whole numbers up to 1048576");
    }
    if (open && (level < 0.001 || level > 1e6)) {
      return refuse("0.001 to 1000000 a second");
    }
    levels.push_back({open, level, {}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LevelResults>> ReadLevels(const Flags& flags) {
  std::vector<LevelResults> levels;
  absl::Status status =
      AddLevels("--concurrency", flags.concurrency, false, levels);
  status.Update(AddLevels("--rate", flags.rate, true, levels));
  if (!status.ok()) return status;
  if (levels.empty()) levels.push_back({false, 1, {}});
  return levels;
}

// On a terminal one line that changes; elsewhere a line now and then.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(const LevelResults& level) : level_(level) {}
  ~ProgressPrinter() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

  void Print(const Results& results, int64_t in_flight, absl::Duration since) {
    if (!terminal_ && ++ticks_ % 5 != 0) return;
    std::fprintf(
        stderr, terminal_ ? "\r\033[K%s" : "%s\n",
        ProgressLine(level_.open_loop, level_.level, results, in_flight, since)
            .c_str());
  }

 private:
  const LevelResults& level_;
  const bool terminal_ = isatty(STDERR_FILENO);
  int ticks_ = 0;
};

client::Priority PriorityOf(const std::string& name) {
  if (name == "low") return client::Priority::kLow;
  return name == "high" ? client::Priority::kHigh : client::Priority::kNormal;
}

int Fail(int code, const absl::Status& status) {
  std::cerr << "attnload: " << status.message() << "\n";
  return code;
}

int FailToWrite(const absl::Status& status) {
  return Fail(2, absl::Status(status.code(),
                              absl::StrCat("cannot write ", status.message())));
}

// Leases what all levels need, before any is measured; null: nothing.
absl::StatusOr<std::unique_ptr<PlacedTensors>> PlaceTensors(
    const Flags& flags, const std::vector<LevelResults>& levels,
    const client::ServerInfo& info, client::Client& client,
    Workload& workload) {
  if (!flags.regions.in_region()) return nullptr;
  int64_t slots = 0;
  for (const LevelResults& level : levels) {
    LoadOptions options = flags.load;
    options.open_loop = level.open_loop;
    options.level = level.level;
    slots = std::max(slots, options.limit());
  }
  const bool on_host =
      flags.regions.transport == client::TransportChoice::kRegion;
  const int64_t most_bytes = on_host && info.region_bytes > 0
                                 ? info.region_bytes
                                 : std::numeric_limits<int64_t>::max();
  auto placed = PlacedTensors::Place(flags.regions, workload, slots, most_bytes,
                                     absl::Seconds(flags.timeout_s));
  if (!placed.ok()) {
    return absl::Status(
        placed.status().code(),
        absl::StrCat("--region_socket: for ", slots, " requests in flight: ",
                     Printable(placed.status().message())));
  }
  for (const auto& region : (*placed)->memory().regions()) {
    client.AddRegion(region);
  }
  return placed;
}

// Set by SIGINT, and SIGTERM.
std::atomic<bool> interrupted = false;

// The first of each ends the load and leaves its results; another ends the
// process, as it would have without this.
void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// Whether every level got answers, all of them right. Those that had not begun
// before an interrupt are gone from `levels`.
bool RunLevels(client::Client& client, const Flags& flags, Workload& workload,
               PlacedTensors* placed, std::vector<LevelResults>& levels) {
  LoadOptions options = flags.load;
  options.warm_up = absl::Seconds(flags.warm_up_s);
  options.duration = absl::Seconds(flags.duration_s);
  options.call.priority = PriorityOf(flags.priority);
  options.call.transport = flags.regions.kind();
  options.placed = placed;
  options.stop = &interrupted;
  bool good = true;
  for (size_t i = 0; i < levels.size(); ++i) {
    if (i > 0 && interrupted) {
      levels.resize(i);
      break;
    }
    LevelResults& level = levels[i];
    options.open_loop = level.open_loop;
    options.level = level.level;
    ProgressPrinter printer(level);
    level.results =
        RunLoad(client, workload, options,
                [&printer](const Results& results, int64_t in_flight,
                           absl::Duration since) {
                  printer.Print(results, in_flight, since);
                });
    good &= level.results.ok > 0 && level.results.answers_wrong == 0;
  }
  return good;
}

// The table, and JSON where it was asked for.
absl::Status WriteResults(const Flags& flags, const std::vector<Shape>& shapes,
                          const std::vector<LevelResults>& levels,
                          const LeasedRegions& regions) {
  // With JSON on stdout, the table is for whoever watches.
  const bool json_on_stdout =
      flags.json == "-" || client::IsStandardOutput(flags.json);
  (json_on_stdout ? std::cerr : std::cout) << Table(shapes, levels, regions);
  if (!flags.json.empty()) {
    const std::string json =
        absl::StrCat(Json(flags.target, shapes, levels, regions), "\n");
    if (json_on_stdout) {
      std::cout << json;
    } else if (absl::Status status = client::WriteWholeFile(flags.json, {json});
               !status.ok()) {
      return status;
    }
  }
  return std::cout.flush() ? absl::OkStatus()
                           : absl::UnknownError("standard output");
}

int Run(Flags flags) {
  // Results are received into memory that glibc would give back after each of
  // them; fresh pages cost more than the copy from them.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  absl::StatusOr<std::vector<Shape>> shapes = ReadShapes(flags);
  if (!shapes.ok()) return Fail(2, shapes.status());
  absl::StatusOr<std::vector<LevelResults>> levels = ReadLevels(flags);
  if (!levels.ok()) return Fail(2, levels.status());
  flags.regions.transport = client::TransportChoices().at(flags.transport);
  if (const absl::Status valid = flags.regions.Validate(); !valid.ok()) {
    return Fail(2, valid);
  }

  client::ClientOptions client_options;
  client_options.connections = flags.connections;
  client_options.max_attempts = flags.attempts;
  flags.credentials.Apply(client_options);
  auto client = client::Client::Create(flags.target, client_options);
  if (!client.ok()) return Fail(2, client::NameFlag(client.status()));
  client::CallOptions call;
  call.timeout = absl::Seconds(flags.timeout_s);
  absl::StatusOr<client::ServerInfo> info = (*client)->GetServerInfo(call);
  if (!info.ok()) {
    return Fail(1, absl::Status(info.status().code(),
                                Printable(info.status().message())));
  }
  CatchInterrupts();
  std::cerr << "attnd " << Printable(info->version) << " at " << flags.target;
  for (const client::Device& device : info->devices) {
    std::cerr << ", " << Printable(device.kind) << ":" << device.index << " "
              << Printable(device.name);
  }
  std::cerr << "\n";

  // Before the load, which may take hours.
  if (!flags.json.empty() && flags.json != "-") {
    const absl::Status writable = client::CheckWritable(flags.json);
    if (!writable.ok()) return FailToWrite(writable);
  }

  flags.load.call = call;
  Workload workload(*shapes, flags.load.seed);
  auto placed = PlaceTensors(flags, *levels, *info, **client, workload);
  if (!placed.ok()) return Fail(1, placed.status());
  LeasedRegions regions;
  if (*placed != nullptr) {
    const client::RegionMemory& memory = (*placed)->memory();
    regions = {static_cast<int64_t>(memory.regions().size()), memory.bytes(),
               memory.on_device()};
  }
  const bool good =
      RunLevels(**client, flags, workload, placed->get(), *levels);
  const absl::Status written = WriteResults(flags, *shapes, *levels, regions);
  if (!written.ok()) return FailToWrite(written);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace attnd::attnload

int main(int argc, char** argv) {
  CLI::App app("Puts load on an attnd server and measures how it bears it",
               "attnload");
  attnd::attnload::Flags flags;
  attnd::attnload::AddFlags(app, flags);
  try {
    attnd::ParseFlags(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  attnd::wire::PrepareForGrpc();
  attnd::client::UseTlsGuard();
  return attnd::attnload::Run(std::move(flags));
}
