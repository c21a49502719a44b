// attnctl: one attention request from .npy files, and a server's information.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "attnd/tls_guard.h"
#include "base/flags.h"
#include "client/attnctl/commands.h"
#include "client/attnctl/flags.h"
#include "client/attnctl/placed_request.h"
#include "client/attnctl/print.h"
#include "client/call_ids.h"
#include "client/credential_flags.h"
#include "client/whole_file.h"
#include "proto/wire/grpc_process.h"

namespace attnd::client {
namespace {

enum ExitStatus { kDone = 0, kDiffers = 1, kBadInput = 2, kCallFailed = 3 };

void Print(const std::string& text, std::FILE* to = stdout) {
  std::fwrite(text.data(), 1, text.size(), to);
}

int Fail(const absl::Status& status, bool json, ExitStatus code) {
  Print(ErrorText(status, code == kCallFailed), stderr);
  if (json) Print(ErrorJson(status));
  return code;
}

int RunRequest(bool forward, Client& client, const Flags& flags,
               CallOptions options) {
  const bool json = flags.server.json;
  const double tolerance = flags.request.tolerance;
  options.priority = flags.request.priority;
  const TransportFlags& transport = flags.request.transport;
  options.transport = transport.kind();
  if (const absl::Status valid = transport.Validate(); !valid.ok()) {
    return Fail(valid, json, kBadInput);
  }
  absl::StatusOr<Request> request =
      forward ? LoadForward(flags.request) : LoadBackward(flags.request);
  if (!request.ok()) return Fail(request.status(), json, kBadInput);
  std::unique_ptr<PlacedRequest> placed;
  if (transport.in_region()) {
    auto result =
        PlacedRequest::Place(transport, options.timeout, *request, client);
    if (!result.ok()) return Fail(result.status(), json, kCallFailed);
    placed = *std::move(result);
  }
  const absl::StatusOr<Report> report = Send(client, *request, options);
  if (!report.ok()) return Fail(report.status(), json, kCallFailed);
  if (placed != nullptr) {
    const absl::Status copied = placed->CopyOut();
    if (!copied.ok()) return Fail(copied, json, kCallFailed);
  }
  const absl::Status finished = Finish(*request);
  if (!finished.ok()) return Fail(finished, json, kBadInput);
  // With an array on stdout, the report is for whoever watches.
  std::FILE* report_to = stdout;
  for (const OutputResult& output : request->outputs) {
    if (IsStandardOutput(output.path)) report_to = stderr;
  }
  Print(json ? ResultJson(*request, *report, tolerance)
             : ResultText(*request, *report, tolerance),
        report_to);
  for (const OutputResult& output : request->outputs) {
    if (!Agrees(output, tolerance)) return kDiffers;
  }
  return kDone;
}

int RunInfo(Client& client, const ServerFlags& flags,
            const CallOptions& options) {
  const absl::StatusOr<ServerInfo> info = client.GetServerInfo(options);
  if (!info.ok()) return Fail(info.status(), flags.json, kCallFailed);
  Print(flags.json ? InfoJson(*info) : InfoText(*info));
  return kDone;
}

int RunHealth(Client& client, const ServerFlags& flags,
              const CallOptions& options) {
  const absl::Status status = client.CheckHealth(flags.service, options);
  if (!status.ok()) return Fail(status, flags.json, kCallFailed);
  Print(flags.json ? "{\"status\": \"SERVING\"}\n" : "SERVING\n");
  return kDone;
}

int Run(const std::string& command, const Flags& flags) {
  CallOptions options;
  if (!absl::ParseDuration(flags.server.timeout, &options.timeout) ||
      options.timeout <= absl::ZeroDuration()) {
    return Fail(absl::InvalidArgumentError(
                    "--timeout: a positive duration such as 500ms, 30s or inf "
                    "is needed"),
                flags.server.json, kBadInput);
  }
  options.request_id = flags.server.request_id;
  options.traceparent = flags.server.traceparent;
  if (const absl::Status valid = CheckIds(options); !valid.ok()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("--", valid.message())),
                flags.server.json, kBadInput);
  }
  ClientOptions client_options;
  client_options.connections = flags.request.connections;
  flags.server.credentials.Apply(client_options);
  const auto client = Client::Create(flags.server.server, client_options);
  if (!client.ok()) {
    return Fail(NameFlag(client.status()), flags.server.json, kBadInput);
  }
  if (command == "info") return RunInfo(**client, flags.server, options);
  if (command == "health") return RunHealth(**client, flags.server, options);
  return RunRequest(command == "forward", **client, flags, options);
}

int Main(int argc, char** argv) {
  CLI::App app("Sends one attention request to an attnd server.", "attnctl");
  Flags flags;
  AddCommands(flags, app);
  try {
    ParseFlags(app, argc, argv, {"--service"});
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kBadInput;
  }
  wire::PrepareForGrpc();
  UseTlsGuard();
  const int code = Run(app.get_subcommands().front()->get_name(), flags);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    Print("attnctl: cannot write to standard output\n", stderr);
    return kBadInput;
  }
  return code;
}

}  // namespace
}  // namespace attnd::client

int main(int argc, char** argv) { return attnd::client::Main(argc, argv); }
