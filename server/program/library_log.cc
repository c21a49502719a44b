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
  const char* severity;
  const char* file;
  int number;
  absl::string_view message;
  bool aborts;  // the process, once it is written
};

void Write(const Line& line) {
  State& state = Global();
  const char* slash = std::strrchr(line.file, '/');
  const std::string text =
      absl::StrCat(line.library, " ", line.severity, " ",
                   slash == nullptr ? line.file : slash + 1, ":", line.number,
                   ": ", line.message);
  if (line.aborts) {
    state.log->Write(text);
    state.log->Flush(kLastLine);
    return;
  }
  const size_t bytes = kStampBytes + Printable(text).size();
  bool allowed = false;
  {
    MutexLock lock(state.mutex);
    allowed =
        state.limit.Allows({line.file, line.number}, bytes, MonotonicNow());
  }
  if (allowed) {
    state.log->Write(text, Log::Source::kLibrary);
  } else {
    state.log->LeftOut(Log::Source::kLibrary, 1);
  }
}

void OnGrpcLine(gpr_log_func_args* args) {
  Write({"gRPC", gpr_log_severity_string(args->severity), args->file,
         args->line, args->message,
         // GPR_ASSERT's.
         absl::StartsWith(args->message, "assertion failed")});
}

void OnProtobufLine(google::protobuf::LogLevel level, const char* file,
                    int line, const std::string& message) {
  // As gRPC has them.
  constexpr const char* kSeverities[] = {"I", "W", "E", "F"};
  Write({"protobuf", kSeverities[level], file, line, message,
         level == google::protobuf::LOGLEVEL_FATAL});
}

}  // namespace

void SendLibraryLinesTo(Log& log) {
  Global().log = &log;
  gpr_set_log_function(OnGrpcLine);
  google::protobuf::SetLogHandler(OnProtobufLine);
}

}  // namespace attnd::server
