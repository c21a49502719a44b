#include "server/program/program.h"

#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/flag_file.h"
#include "base/flags.h"
#include "proto/wire/grpc_process.h"
#include "server/program/descriptors.h"
#include "server/program/devices.h"
#include "server/program/flags.h"
#include "server/program/frame_reads.h"
#include "server/program/heap.h"
#include "server/program/library_log.h"
#include "server/program/notify.h"
#include "server/program/signals.h"
#include "server/program/threads.h"
#include "server/server.h"
#include "server/telemetry/log.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace attnd::server {
namespace {

// Exit codes.
constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kBadFlags = 2;

// How long the last lines may take to get out, past which nobody waits for who
// reads them.
constexpr absl::Duration kLastLines = absl::Milliseconds(200);

// How often free memory is given back while there is little to do.
constexpr absl::Duration kHeapInterval = absl::Seconds(5);

// Whole or not at all: a reader never sees half a number, and where it cannot
// be written nothing is left.
bool WritePortFile(const std::string& path, int port) {
  const std::string partial = absl::StrCat(path, ".", getpid());
  std::ofstream file(partial);
  file << port << "\n";
  file.close();
  if (file.good() && std::rename(partial.c_str(), path.c_str()) == 0) {
    return true;
  }
  std::remove(partial.c_str());
  return false;
}

// Without what would wait for another: destructors for peers that do not read,
// exit handlers for whoever reads what stdio holds.
[[noreturn]] void ExitNow(Log& log, int code) {
  log.Flush(kLastLines);
  _exit(code);
}

// False, and says so: there are too few for a server over `devices` devices.
bool HasThreads(const ServerOptions& options, int devices, Log& log) {
  const ThreadNeeds needs = NeedsOf(options, devices);
  const int startable = CountStartable(needs.at_start + needs.under_load);
  const auto say = [&](LogLevel level, absl::string_view what, int wanted) {
    log.Write(level,
              absl::StrCat(what, ": of ", wanted, " threads it needs only ",
                           startable, " can start; see ulimit -u and the ",
                           "control group's pids.max"));
  };
  if (startable < needs.at_start) {
    say(LogLevel::kError, "cannot start", needs.at_start);
    return false;
  }
  if (startable < needs.at_start + needs.under_load) {
    say(LogLevel::kWarning, "calls may hang under load",
        needs.at_start + needs.under_load);
  }
  return true;
}

// Lowers --max_connections to what the process' descriptors allow. False, and
// says so: they allow none.
bool HasDescriptors(ServerOptions& options, Log& log) {
  const int64_t limit = RaiseDescriptorLimit();
  const absl::StatusOr<int> connections =
      ConnectionsWithin(limit, CountDescriptors(), options);
  if (!connections.ok()) {
    log.Write(LogLevel::kError,
              absl::StrCat("cannot start: ", connections.status().message()));
    return false;
  }
  if (*connections < options.max_connections) {
    log.Write(
        LogLevel::kWarning,
        absl::StrCat("--max_connections: ", *connections, " instead of ",
                     options.max_connections, ", as the process may ",
                     "have only ", limit, " descriptors; see ulimit -Hn"));
    options.max_connections = *connections;
  }
  return true;
}

// Ends the process when a second signal cuts the drain short.
void ExitAtSecondSignal(const sigset_t& signals, Server& server, Log& log) {
  try {
    std::thread([&signals, &server, &log] {
      AwaitEnd(signals, log);
      log.Write(LogLevel::kWarning, "a second signal: exiting at once");
      server.RemoveUnixSocket();
      ExitNow(log, kFailed);
    }).detach();
  } catch (const std::system_error&) {
    log.Write(LogLevel::kWarning,
              "no thread is left to wait for a second signal");
  }
}

// Tells the service manager, if there is one.
void Tell(absl::string_view news, Log& log) {
  const absl::Status told = Notify(NotifySocket(), news);
  if (!told.ok()) log.Write(LogLevel::kWarning, told.message());
}

// In a build with the address sanitizer: exits with its code if anything that
// nothing points to is left. It would look by itself, but only at an exit that
// runs exit handlers.
void CheckLeaks() {
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_leak_check();
#endif
}

int Serve(Flags& flags, const CreateBackends& create, const sigset_t& signals,
          Log& log) {
  auto backends = create(flags.devices);
  if (!backends.ok()) {
    log.Write(LogLevel::kError,
              absl::StrCat("no device: ", backends.status().message()));
    return kFailed;
  }
  if (!HasThreads(flags.server, static_cast<int>(backends->size()), log) ||
      !HasDescriptors(flags.server, log)) {
    return kFailed;
  }
  auto server = Server::Start(flags.server, *std::move(backends));
  if (!server.ok()) {
    log.Write(LogLevel::kError, server.status().message());
    return absl::IsInvalidArgument(server.status()) ? kBadFlags : kFailed;
  }
  for (const std::string& line : (*server)->Describe()) log.Write(line);
  if (!flags.port_file.empty() &&
      !WritePortFile(flags.port_file, (*server)->port())) {
    log.Write(LogLevel::kError,
              absl::StrCat("--port_file: cannot write ", flags.port_file));
    return kFailed;
  }
  Tell(kReady, log);

  const int signal = AwaitEnd(signals, log, kHeapInterval, [&] {
    if (!(*server)->IsQuiet()) return;
    (*server)->ReleaseIdleMemory();
    ReleaseFreeHeap();
  });
  log.Write(absl::StrCat(strsignal(signal), ": draining for up to ",
                         absl::FormatDuration(flags.server.drain_time)));
  Tell(Stopping(flags.server.drain_time), log);
  ExitAtSecondSignal(signals, **server, log);
  (*server)->Drain(flags.server.drain_time);
  (*server)->RemoveUnixSocket();
  log.Write("bye");
  CheckLeaks();
  ExitNow(log, kOk);
}

// The command line, then --config. Throws CLI::ParseError.
void ReadFlags(CLI::App& app, int argc, char** argv, const Flags& flags) {
  const std::set<std::string> may_be_empty = {
      "--unix_socket", "--region_socket", "--region_group", "--admin_address",
      "--otlp_endpoint"};
  ParseFlags(app, argc, argv, may_be_empty);
  if (flags.config.empty()) return;
  ReadFlagFile(app, flags.config, may_be_empty);
}

// Flags that do not go together, or are out of range.
void RefuseFlags(const absl::Status& why, const Flags& flags) {
  std::fprintf(stderr, "%s\n", std::string(why.message()).c_str());
  if (!flags.config.empty()) {
    std::fprintf(stderr, "Flags were read from %s as well.\n",
                 flags.config.c_str());
  }
  std::fprintf(stderr, "Run with --help for more information.\n");
}

// What attnd runs with here, as a file for --config. An exit code.
int PrintConfig(const CLI::App& app) {
  std::printf(
      "# What attnd runs with, as a file for --config: what it was given, "
      "and,\n"
      "# commented out, what it takes where it was given nothing.\n%s",
      WriteFlagFile(app).c_str());
  return std::fflush(stdout) == 0 ? kOk : kFailed;
}

}  // namespace

int RunProgram(int argc, char** argv, const CreateBackends& create) {
  Flags flags;
  CLI::App app(
      "attnd computes exact attention, forward and backward, for gRPC "
      "clients.\nIt serves attn.v1.AttentionService and health until SIGTERM, "
      "SIGINT or\nSIGQUIT, and then drains; other signals end nothing.",
      "attnd");
  app.option_defaults()->always_capture_default();
  AddFlags(app, flags);
  try {
    ReadFlags(app, argc, argv, flags);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kBadFlags;
  }
  ReadWholeFrames();
  wire::PrepareForGrpc();
  LimitHeap(flags.server.memory_limit_bytes);
  LimitKeptMemory(flags.server.memory_limit_bytes, flags.devices);
  const sigset_t signals = BlockSignals();
  flags.devices = Resolve(std::move(flags.devices));
  SetDeviceDefaults(app, flags);
  const absl::Status valid = flags.server.Validate();
  if (!valid.ok()) {
    RefuseFlags(valid, flags);
    return kBadFlags;
  }
  if (flags.print_config) return PrintConfig(app);
  absl::StatusOr<std::unique_ptr<Log>> started =
      Log::Start(STDERR_FILENO, flags.log);
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(started.status().message()).c_str());
    return kFailed;
  }
  Log& log = *started->release();  // for gRPC's threads, as long as they live
  SendLibraryLinesTo(log);
  flags.server.heap_in_use = HeapInUse;
  flags.server.log = [&log](const LogLine& line) { log.Write(line); };
  flags.server.leave_out = [&log] { log.LeftOut(LogSource::kServer, 1); };
  flags.server.calls.leave_out = [&log] { log.LeftOut(LogSource::kCall, 1); };
  flags.server.calls.level = flags.log.level;
  flags.server.calls.write = [&log](const LogLine& line) {
    log.Write(line, LogSource::kCall);
  };
  flags.server.log_stats = [&log] { return log.stats(); };
  int code = kFailed;
  try {
    code = Serve(flags, create, signals, log);
  } catch (const std::system_error& error) {
    log.Write(LogLevel::kError,
              absl::StrCat("cannot start a thread: ", error.what()));
  }
  log.Flush(kLastLines);
  return code;
}

}  // namespace attnd::server
