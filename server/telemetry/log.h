#ifndef ATTND_SERVER_TELEMETRY_LOG_H_
#define ATTND_SERVER_TELEMETRY_LOG_H_

// The program's log: lines on one descriptor, from any thread. Nobody waits for
// whoever reads it: a thread of its own writes, and what finds no room in its
// queue is left out and counted.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnd::server {

// `text` on one line of printable ASCII: other bytes and the backslash become
// \xNN. What is longer than kMaxLineBytes ends in "...".
inline constexpr size_t kMaxLineBytes = 1000;
std::string Printable(absl::string_view text);
// What the time of day and the line's end add to it.
inline constexpr size_t kStampBytes = 26;

// Thread-safe.
class Log {
 public:
  // Who wrote a line. Each has its own part of the queue, so that libraries,
  // whom clients can make talk, never crowd out the server's lines.
  enum class Source { kServer, kLibrary };
  static constexpr size_t kQueueBytes = 64 << 10;  // of each source

  // Writes to a duplicate of `fd`. RESOURCE_EXHAUSTED: no thread can be
  // started.
  static absl::StatusOr<std::unique_ptr<Log>> Start(int fd);
  // Leaves what has not been written, and does not wait for a write that is
  // stuck: its thread may outlive this.
  ~Log();

  // Adds the time of day and what Printable makes of `line`. Never blocks.
  void Write(absl::string_view line, Source source = Source::kServer);
  // Counts lines of `source` that its owner left out; they are told of too.
  void LeftOut(Source source, int64_t lines);
  // Waits until everything is written, `limit` at most. False: it is not.
  bool Flush(absl::Duration limit);

 private:
  class Writer;
  explicit Log(std::shared_ptr<Writer> writer);
  const std::shared_ptr<Writer> writer_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_LOG_H_
