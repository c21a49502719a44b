#ifndef ATTND_SERVER_TELEMETRY_LOG_H_
#define ATTND_SERVER_TELEMETRY_LOG_H_

// The program's log: lines on one descriptor, from any thread. Nobody waits for
// whoever reads it: a thread of its own writes, and what finds no room in its
// queue is left out and counted. spdlog makes the lines.

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "server/config/log_stats.h"
#include "server/telemetry/log_form.h"

namespace spdlog {
class logger;
}

namespace attnd::server {

// Thread-safe.
class Log {
 public:
  // Each source has its own part of the queue, so that libraries and calls,
  // whom clients can make talk, never crowd out the server's lines.
  using Source = LogSource;
  static constexpr size_t kQueueBytes = 64 << 10;  // of each source

  // Writes to a duplicate of `fd`. RESOURCE_EXHAUSTED: no thread can be
  // started.
  static absl::StatusOr<std::unique_ptr<Log>> Start(int fd,
                                                    LogOptions options = {});
  // Leaves what has not been written, and does not wait for a write that is
  // stuck: its thread may outlive this.
  ~Log();

  // Adds the time of day and what Printable makes of the line's texts. Never
  // blocks.
  void Write(const LogLine& line, Source source = Source::kServer);
  void Write(LogLevel level, absl::string_view message) {
    Write(LogLine{level, std::string(message)});
  }
  // Of level kInfo.
  void Write(absl::string_view message, Source source = Source::kServer) {
    Write(LogLine{LogLevel::kInfo, std::string(message)}, source);
  }
  // Counts lines of `source` that its owner left out; they are told of too.
  void LeftOut(Source source, int64_t lines);
  LogStats stats() const;
  // Waits until everything is written, `limit` at most. False: it is not.
  bool Flush(absl::Duration limit);

 private:
  class Writer;
  class Sink;
  Log(std::shared_ptr<Writer> writer, LogOptions options);

  const LogOptions options_;
  const std::shared_ptr<Writer> writer_;
  std::array<std::unique_ptr<spdlog::logger>, kLogSources> loggers_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_LOG_H_
