#include "server/program/flags.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/wire/status.h"
#include "server/config/version.h"

namespace attnd::server {
namespace {

CLI::Option* AddDuration(CLI::App& app, const std::string& name,
                         absl::Duration& value, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            if (!absl::ParseDuration(text, &value)) {
              throw CLI::ValidationError(
                  name, absl::StrCat("\"", wire::Echo(text),
                                     "\" is no duration such as 30s or 1.5ms"));
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

// Permissions in octal, as chmod has them, whether or not a 0 leads.
CLI::Option* AddMode(CLI::App& app, const std::string& name, int& value,
                     const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            const bool octal =
                !text.empty() && text.size() <= 4 &&
                text.find_first_not_of("01234567") == std::string::npos;
            if (!octal) {
              throw CLI::ValidationError(
                  name, "\"" + text + "\" is no octal mode such as 0660");
            }
            value = std::stoi(text, nullptr, 8);
          },
          help)
      ->type_name("MODE")
      ->default_str(absl::StrFormat("%04o", value));
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
         "What computes: cpu, cpu*4 (so many virtual devices, to try plans), "
         "cuda (every GPU), cuda:0,2 (these), or auto: the GPUs if there are "
         "any")
      ->type_name("DEVICE")
      ->default_str(DeviceFlag(devices))
      ->group("Device");
}

// One of some words.
template <typename T, size_t n>
CLI::Option* AddChoice(CLI::App& app, const std::string& name, T& value,
                       const std::pair<const char*, T> (&choices)[n],
                       const std::string& help) {
  std::string words, current;
  for (const auto& [word, choice] : choices) {
    absl::StrAppend(&words, words.empty() ? "" : ", ", word);
    if (choice == value) current = word;
  }
  return app
      .add_option_function<std::string>(
          name,
          [name, words, &choices, &value](const std::string& text) {
            for (const auto& [word, choice] : choices) {
              if (text != word) continue;
              value = choice;
              return;
            }
            throw CLI::ValidationError(
                name,
                absl::StrCat("\"", wire::Echo(text), "\" is none of ", words));
          },
          help)
      ->type_name("WORD")
      ->default_str(current);
}

constexpr std::pair<const char*, tls::MinVersion> kTlsVersions[] = {
    {"1.2", tls::MinVersion::kTls12}, {"1.3", tls::MinVersion::kTls13}};

void AddTlsFlags(CLI::App& app, tls::CredentialFiles& t) {
  app.add_option("--tls_cert", t.certificate,
                 "Encrypts TCP: PEM file with the server's certificate and "
                 "those that lead to a root; read again when it changes")
      ->group("TLS");
  app.add_option("--tls_key", t.key, "PEM file with its private key")
      ->group("TLS");
  app.add_option("--tls_client_ca", t.client_ca,
                 "PEM file with the roots of clients' certificates; nobody may "
                 "connect by TCP without one that leads there")
      ->group("TLS");
  AddChoice(app, "--tls_min_version", t.min_version, kTlsVersions,
            "The oldest version that is spoken: 1.2 or 1.3")
      ->group("TLS");
}

constexpr std::pair<const char*, Reflection> kReflections[] = {
    {"off", Reflection::kOff},
    {"admin", Reflection::kAdmin},
    {"all", Reflection::kAll}};
constexpr std::pair<const char*, LogOptions::Format> kLogFormats[] = {
    {"text", LogOptions::Format::kText}, {"json", LogOptions::Format::kJson}};
constexpr std::pair<const char*, LogLevel> kLogLevels[] = {
    {"debug", LogLevel::kDebug},
    {"info", LogLevel::kInfo},
    {"warning", LogLevel::kWarning},
    {"error", LogLevel::kError}};

void AddLogFlags(CLI::App& app, Flags& flags) {
  AddChoice(app, "--log_format", flags.log.format, kLogFormats,
            "Lines of the log: text, or json, an object a line")
      ->group("Log");
  AddChoice(app, "--log_level", flags.log.level, kLogLevels,
            "The least that is logged: debug (every call), info (those that "
            "fail or are slow), warning or error")
      ->group("Log");
  AddDuration(app, "--slow_time", flags.server.calls.slow_time,
              "Calls that take longer are logged as slow; 0: none")
      ->group("Log");
  app.add_option("--otlp_endpoint", flags.server.otlp_endpoint,
                 "Send spans of calls that are in a recorded trace to this "
                 "collector, by OTLP over gRPC, e.g. http://127.0.0.1:4317; "
                 "empty: to none")
      ->group("Log");
}

void AddRegionFlags(CLI::App& app, RegionOptions& r) {
  app.add_option("--region_socket", r.socket,
                 "Lease regions, memory that clients on this host share, at "
                 "this path; empty: none")
      ->group("Regions");
  AddMode(app, "--region_socket_mode", r.socket_mode,
          "Permissions of that socket; 0660 lets its group connect as well")
      ->group("Regions");
  app.add_option("--region_group", r.group,
                 "Group of that socket, a name or a number; empty: as its "
                 "folder has it")
      ->group("Regions");
  app.add_option("--region_uids", r.users,
                 "Users who may have regions, e.g. 1000,1001; none given: "
                 "whoever may connect")
      ->delimiter(',')
      ->group("Regions");
  AddBytes(app, "--region_memory", r.memory_bytes,
           "Host memory for regions, beside --memory_limit, taken and pinned "
           "at the start; 0: none")
      ->group("Regions");
  AddBytes(app, "--region_slab", r.slab_bytes,
           "The smallest region; others are 4 and 16 times as large")
      ->group("Regions");
  AddBytes(app, "--region_import_memory", r.import_memory_bytes,
           "Clients' memory on GPUs that may be lent at once, at most what "
           "the GPUs have; 0: none")
      ->group("Regions");
  app.add_option("--max_region_connections", r.max_connections,
                 "Regions at once; who connects beyond is refused")
      ->group("Regions");
  app.add_option("--max_regions_per_user", r.max_leases_per_user,
                 "Regions of host memory of a user")
      ->group("Regions");
  AddBytes(app, "--region_memory_per_user", r.memory_per_user_bytes,
           "Host memory in regions of a user; 0: eight times what is left")
      ->group("Regions");
  app.add_option("--max_region_imports_per_user", r.max_imports_per_user,
                 "Regions of GPU memory of a user")
      ->group("Regions");
  app.add_option("--region_imports_per_second", r.imports_per_second,
                 "Regions of GPU memory that a user may begin a second")
      ->group("Regions");
}

void AddIdentityFlags(CLI::App& app, IdentityOptions& i) {
  app.add_option("--token_file", i.token_file,
                 "Names, hashes of their bearer tokens, and their limits; read "
                 "again when it changes; not given: no token is known")
      ->group("Identity");
  app.add_flag("--require_identity", i.required,
               "Refuse calls without a token, but for health")
      ->group("Identity");
  app.add_option("--max_client_rate", i.limits.calls_per_second,
                 "Calls a second of a client; 0: as many as it can make")
      ->group("Identity");
  AddBytes(app, "--max_client_queue_bytes", i.limits.queue_bytes,
           "Memory that a client's admitted requests hold; 0: eight times "
           "what is left")
      ->group("Identity");
  app.add_option("--max_client_queue_flops", i.limits.queue_flops,
                 "Floating-point operations of a client that wait; 0: eight "
                 "times what is left")
      ->group("Identity");
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

}  // namespace

void AddFlags(CLI::App& app, Flags& flags) {
  ServerOptions& s = flags.server;
  SchedulerOptions& q = s.scheduler;
  app.set_version_flag("--version", kVersion);
  app.add_option("--config", flags.config,
                 "File with flags, one a line as in \"port = 7411\"; what the "
                 "command line has goes first")
      ->type_name("FILE")
      ->configurable(false);
  app.add_flag("--print_config", flags.print_config,
               "Print what attnd would run with, as such a file, and exit")
      ->configurable(false);
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
  AddBytes(app, "--small_request_bytes", q.small_request_bytes,
           "Most bytes, in and out, of a request that counts as small")
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
  app.add_option("--unix_socket", s.unix_socket,
                 "Listen on this path as well; empty: on none")
      ->group("Addresses");
  AddMode(app, "--unix_socket_mode", s.unix_socket_mode,
          "Permissions of that socket; 0660 lets its group connect as well")
      ->group("Addresses");
  app.add_option("--metrics_port", s.metrics_port,
                 "HTTP port for Prometheus; 0: any free one, -1: none")
      ->group("Addresses");
  app.add_option(
         "--admin_address", s.admin_address,
         "HOST:PORT for operators: /metrics, /healthz, /readyz, /status "
         "and, for browsers, /statusz over HTTP, and health, channelz "
         "and reflection over gRPC; empty: none")
      ->group("Addresses");
  AddChoice(app, "--reflection", s.reflection, kReflections,
            "Who may ask what is served, by gRPC's reflection: nobody (off), "
            "who reaches --admin_address (admin), or all clients (all)")
      ->group("Addresses");
  app.add_flag("--insecure", s.allow_insecure_bind,
               "Allow a --host or --admin_address beyond loopback, without "
               "encryption")
      ->group("Addresses");
  AddTlsFlags(app, s.tls);

  AddLogFlags(app, flags);
  AddIdentityFlags(app, s.identity);
  AddRegionFlags(app, s.regions);
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
                 "Connections; more are closed as they come")
      ->group("Limits");
  app.add_option("--max_connections_per_client", s.max_connections_per_client,
                 "Connections of an IPv4 address, an IPv6 /64 or, on the unix "
                 "socket, a user")
      ->group("Limits");
  app.add_option("--max_transfer_streams", s.max_transfer_streams,
                 "Streams of one Exchange")
      ->group("Limits");
  app.add_option("--io_threads", s.io_threads,
                 "Threads that read and write the network; 0: one a "
                 "processor, 16 at most")
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
  AddDuration(app, "--idle_timeout", s.idle_timeout,
              "Time without calls after which a connection is closed; clients "
              "connect again when they call; 0: never")
      ->group("Limits");
  AddDuration(app, "--connection_age", s.connection_age,
              "Age from which a connection takes no new calls, and ends with "
              "those that it has; 0: never")
      ->group("Limits");
  AddDuration(app, "--header_time", s.header_time,
              "Time for a new connection to begin to speak HTTP/2 or to ask "
              "for a region, and for an Exchange to send its first message")
      ->group("Limits");
  AddDuration(app, "--stall_time", s.stall_time,
              "Time in which a message must arrive or be read, and a second "
              "more for each 8 MiB")
      ->group("Limits");
  app.add_flag("--long_links", s.long_links,
               "Open windows for clients a long way off; messages that wait to "
               "be read then take megabytes")
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
  AddDuration(app, "--slice_time", q.slice_time,
              "How long a request larger than a group runs before it is paused "
              "for others that wait")
      ->group("Batches");
  app.footer(DescribeGpuDefaults());
  app.get_formatter()->column_width(40);
}

void SetDeviceDefaults(CLI::App& app, Flags& flags) {
  SchedulerOptions& options = flags.server.scheduler;
  const SchedulerOptions defaults = SchedulerDefaults(flags.devices.kind);
  for (const SchedulerFlag& flag : kByDevice) {
    if (app.count(flag.name) > 0) continue;
    std::visit(
        [&](auto value) {
          options.*value = defaults.*value;
          app.get_option(flag.name)->default_str(absl::StrCat(defaults.*value));
        },
        flag.value);
  }
}

}  // namespace attnd::server
