#include "server/program/library_log.h"

#include <cstring>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "server/telemetry/line_limit.h"

namespace attnd::server {
namespace {

// How long the last line before a library aborts may take to get out.
constexpr absl::Duration kLastLine = absl::Milliseconds(200);

// Handlers are functions without state.
struct State {
  Log* log = nullptr;
  Mutex mutex;
  LineLimit limit ABSL_GUARDED_BY(mutex);
};
State& Global() {
  static State& state = *new State;
  return state;
}

struct Line {
  const char* library;
  LogLevel level;
  const char* file;
  int number;
  absl::string_view message;
  bool aborts;  // the process, once it is written
};

void Write(const Line& line) {
  State& state = Global();
  const char* slash = std::strrchr(line.file, '/');
  const LogLine text{
      line.level,
      absl::StrCat(line.library, ": ", line.message),
      {{"library", line.library},
       {"source", absl::StrCat(slash == nullptr ? line.file : slash + 1, ":",
                               line.number)}}};
  if (line.aborts) {
    state.log->Write(text);
    state.log->Flush(kLastLine);
    return;
  }
  bool allowed = false;
  {
    MutexLock lock(state.mutex);
    allowed = state.limit.Allows({line.file, line.number}, LineBytes(text),
                                 MonotonicNow());
  }
  if (allowed) {
    state.log->Write(text, Log::Source::kLibrary);
  } else {
    state.log->LeftOut(Log::Source::kLibrary, 1);
  }
}

// GRPC_VERBOSITY has chosen what comes here, so nothing of it is of a lower
// level than what is written by default.
LogLevel LevelOf(gpr_log_severity severity) {
  return severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kError
                                            : LogLevel::kInfo;
}

void OnGrpcLine(gpr_log_func_args* args) {
  Write({"gRPC", LevelOf(args->severity), args->file, args->line, args->message,
         // GPR_ASSERT's.
         absl::StartsWith(args->message, "assertion failed")});
}

void OnProtobufLine(google::protobuf::LogLevel level, const char* file,
                    int line, const std::string& message) {
  constexpr LogLevel kLevels[] = {LogLevel::kInfo, LogLevel::kWarning,
                                  LogLevel::kError, LogLevel::kError};
  Write({"protobuf", kLevels[level], file, line, message,
         level == google::protobuf::LOGLEVEL_FATAL});
}

}  // namespace

void SendLibraryLinesTo(Log& log) {
  Global().log = &log;
  gpr_set_log_function(OnGrpcLine);
  google::protobuf::SetLogHandler(OnProtobufLine);
}

}  // namespace attnd::server
