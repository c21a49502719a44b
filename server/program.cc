#include "server/program.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/devices.h"
#include "server/heap.h"
#include "server/server.h"
#include "server/version.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace attnd::server {
namespace {

// Exit codes.
constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kBadFlags = 2;

struct Flags {
  Flags() {
    server.port = 7411;  // where attnctl looks
    server.scheduler = SchedulerDefaults(DeviceOptions::Kind::kCpu);
  }

  ServerOptions server;
  DeviceOptions devices;
  std::string port_file;
};

void Log(absl::string_view line) {
  const std::string text =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", absl::Now(),
                                    absl::UTCTimeZone()),
                   line, "\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
}

CLI::Option* AddDuration(CLI::App& app, const std::string& name,
                         absl::Duration& value, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            if (!absl::ParseDuration(text, &value)) {
              throw CLI::ValidationError(
                  name, "\"" + text + "\" is no duration such as 30s or 1.5ms");
            }
          },
          help)
      ->type_name("DURATION")
      ->default_str(absl::FormatDuration(value));
}

CLI::Option* AddBytes(CLI::App& app, const std::string& name, int64_t& value,
                      const std::string& help) {
  return app.add_option(name, value, help)
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("BYTES");
}

void AddDevice(CLI::App& app, DeviceOptions& devices) {
  app.add_option_function<std::string>(
         "--device",
         [&devices](const std::string& text) {
           if (absl::Status status = ParseDevice(text, devices); !status.ok()) {
             throw CLI::ValidationError("--device",
                                        std::string(status.message()));
           }
         },
         "What computes: cpu, cuda (every GPU), cuda:0,2 (these), or auto: the "
         "GPUs if there are any")
      ->type_name("DEVICE")
      ->default_str(DeviceFlag(devices))
      ->group("Device");
}

// Those whose default depends on the device.
struct SchedulerFlag {
  const char* name;
  std::variant<int SchedulerOptions::*, double SchedulerOptions::*> value;
};
constexpr SchedulerFlag kByDevice[] = {
    {"--lanes", &SchedulerOptions::lanes_per_device},
    {"--small_request_flops", &SchedulerOptions::small_request_flops},
    {"--run_here_flops", &SchedulerOptions::run_here_flops},
    {"--max_batch_flops", &SchedulerOptions::max_batch_flops},
    {"--max_queue_flops", &SchedulerOptions::max_queue_flops},
    {"--max_request_flops", &SchedulerOptions::max_request_flops},
};

// Sets what was not given to its default where `kind` computes.
void SetDefaults(const CLI::App& app, DeviceOptions::Kind kind,
                 SchedulerOptions& options) {
  const SchedulerOptions defaults = SchedulerDefaults(kind);
  for (const SchedulerFlag& flag : kByDevice) {
    if (app.count(flag.name) > 0) continue;
    std::visit([&](auto value) { options.*value = defaults.*value; },
               flag.value);
  }
}

// For --help: those that differ.
std::string DescribeGpuDefaults() {
  const SchedulerOptions cpu = SchedulerDefaults(DeviceOptions::Kind::kCpu);
  const SchedulerOptions gpu = SchedulerDefaults(DeviceOptions::Kind::kCuda);
  std::string text = "On a GPU, unless given:";
  for (const SchedulerFlag& flag : kByDevice) {
    std::visit(
        [&](auto value) {
          if (cpu.*value == gpu.*value) return;
          absl::StrAppend(&text, " ", flag.name, "=", gpu.*value);
        },
        flag.value);
  }
  return text;
}

void AddFlags(CLI::App& app, Flags& flags) {
  ServerOptions& s = flags.server;
  SchedulerOptions& q = s.scheduler;
  app.set_version_flag("--version", kVersion);
  AddDevice(app, flags.devices);
  app.add_option("--threads", flags.devices.cpu.threads,
                 "CPU compute threads; 0: one per processor")
      ->check(CLI::Range(0, 1024))
      ->group("Device");
  app.add_option("--lanes", q.lanes_per_device,
                 "Groups of requests on a device at once; with two or more, "
                 "one is kept for small requests")
      ->group("Device");
  app.add_option("--small_request_flops", q.small_request_flops,
                 "Largest request, in floating-point operations, that counts "
                 "as small")
      ->group("Device");
  app.add_option("--run_here_flops", q.run_here_flops,
                 "Requests up to this cost run on the thread that receives "
                 "them while a lane is idle and nothing is queued")
      ->group("Device");

  app.add_option("--host", s.host, "Address to listen on")->group("Addresses");
  app.add_option("--port", s.port, "TCP port; 0: any free one, -1: no TCP")
      ->group("Addresses");
  app.add_option("--port_file", flags.port_file,
                 "File to write the port to, once listening")
      ->group("Addresses");
  app.add_option("--unix_socket", s.unix_socket, "Listen on this path as well")
      ->group("Addresses");
  app.add_option("--metrics_port", s.metrics_port,
                 "HTTP port for Prometheus; 0: any free one, -1: none")
      ->group("Addresses");
  app.add_flag("--insecure", s.allow_insecure_bind,
               "Allow a --host beyond loopback, without encryption")
      ->group("Addresses");

  AddBytes(app, "--memory_limit", s.memory_limit_bytes,
           "All requests together, e.g. 2GiB")
      ->group("Limits");
  AddBytes(app, "--max_message", s.max_message_bytes,
           "Largest message; 0: as the memory limit allows")
      ->group("Limits");
  app.add_option("--max_queue_requests", q.max_queue_requests,
                 "Requests that may wait")
      ->group("Limits");
  app.add_option("--max_queue_flops", q.max_queue_flops,
                 "Floating-point operations that may wait")
      ->group("Limits");
  app.add_option("--max_request_flops", q.max_request_flops,
                 "Largest request, in floating-point operations")
      ->group("Limits");
  app.add_option("--max_streams", s.max_streams_per_connection,
                 "Calls at once per connection")
      ->group("Limits");
  app.add_option("--max_connections", s.max_connections,
                 "Connections; refused where the gRPC version cannot limit "
                 "them, otherwise 1024 unless given")
      ->group("Limits");
  AddBytes(app, "--max_metadata", s.max_metadata_bytes,
           "Largest headers of a call, all together")
      ->group("Limits");
  AddDuration(app, "--drain_time", s.drain_time,
              "Time for admitted work to finish after SIGTERM")
      ->group("Limits");
  AddDuration(app, "--keepalive_time", s.keepalive_time,
              "Silence after which a peer is asked whether it lives")
      ->group("Limits");
  AddDuration(app, "--keepalive_timeout", s.keepalive_timeout,
              "Time it then has to answer")
      ->group("Limits");

  app.add_option("--max_batch_requests", q.max_batch_requests,
                 "Requests in a group")
      ->group("Batches");
  app.add_option("--max_batch_flops", q.max_batch_flops,
                 "Floating-point operations at which a group stops growing")
      ->group("Batches");
  AddDuration(app, "--max_batch_delay", q.max_batch_delay,
              "How long a request may wait for others though a lane is free")
      ->group("Batches");
  app.footer(DescribeGpuDefaults());
  app.get_formatter()->column_width(40);
}

// Whole or not at all: a reader never sees half a number.
bool WritePortFile(const std::string& path, int port) {
  const std::string partial = absl::StrCat(path, ".", getpid());
  std::ofstream file(partial);
  file << port << "\n";
  file.close();
  return file.good() && std::rename(partial.c_str(), path.c_str()) == 0;
}

// SIGTERM and SIGINT are only ever received by sigwait.
sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// In a build with the address sanitizer: exits with its code if anything that
// nothing points to is left. It would look by itself, but only at an exit that
// runs exit handlers.
void CheckLeaks() {
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_leak_check();
#endif
}

[[noreturn]] void ExitNow(int code) {
  std::fflush(nullptr);
  _exit(code);
}

int Serve(const Flags& flags, const CreateBackends& create,
          const sigset_t& signals) {
  auto backends = create(flags.devices);
  if (!backends.ok()) {
    Log(absl::StrCat("no device: ", backends.status().message()));
    return kFailed;
  }
  auto server = Server::Start(flags.server, *std::move(backends));
  if (!server.ok()) {
    Log(server.status().message());
    return absl::IsInvalidArgument(server.status()) ? kBadFlags : kFailed;
  }
  for (const std::string& line : (*server)->Describe()) Log(line);
  if (!flags.port_file.empty() &&
      !WritePortFile(flags.port_file, (*server)->port())) {
    Log(absl::StrCat("--port_file: cannot write ", flags.port_file));
    return kFailed;
  }

  int signal = 0;
  sigwait(&signals, &signal);
  Log(absl::StrCat(strsignal(signal), ": draining for up to ",
                   absl::FormatDuration(flags.server.drain_time)));
  std::thread([&signals] {
    int again = 0;
    sigwait(&signals, &again);
    Log("a second signal: exiting at once");
    ExitNow(kFailed);
  }).detach();
  (*server)->Drain(flags.server.drain_time);
  Log("bye");
  CheckLeaks();
  // Not by way of destructors: a peer that does not read could hold them up.
  ExitNow(kOk);
}

}  // namespace

int RunProgram(int argc, char** argv, const CreateBackends& create) {
  Flags flags;
  CLI::App app(
      "attnd computes exact attention, forward and backward, for gRPC "
      "clients.\nIt serves attn.v1.AttentionService, health and reflection "
      "until SIGTERM.",
      "attnd");
  app.option_defaults()->always_capture_default();
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kBadFlags;
  }
  LimitHeap(flags.server.memory_limit_bytes);
  const sigset_t signals = BlockSignals();
  flags.devices = Resolve(std::move(flags.devices));
  SetDefaults(app, flags.devices.kind, flags.server.scheduler);
  const absl::Status valid = flags.server.Validate();
  if (!valid.ok()) {
    std::fprintf(stderr, "%s\nRun with --help for more information.\n",
                 std::string(valid.message()).c_str());
    return kBadFlags;
  }
  return Serve(flags, create, signals);
}

}  // namespace attnd::server
