#ifndef ATTND_SERVER_TELEMETRY_LOG_FORM_H_
#define ATTND_SERVER_TELEMETRY_LOG_FORM_H_

// How lines of the log look: as text, for people, and as JSON, for whoever
// collects them.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/log_line.h"

namespace attnd::server {

struct LogOptions {
  // kText: "2026-11-30T12:00:00.000Z warning message name=value".
  // kJson: an object a line, with time, level, message and the fields.
  enum class Format : uint8_t { kText, kJson };
  Format format = Format::kText;
  LogLevel level = LogLevel::kInfo;  // the least that is written
};

// `text` on one line of printable ASCII: other bytes and the backslash become
// \xNN. What is longer than kMaxLineBytes ends in "...".
inline constexpr size_t kMaxLineBytes = 1000;
std::string Printable(absl::string_view text);

// A field's text beyond so many bytes ends in "...".
inline constexpr size_t kMaxFieldBytes = 256;

// The message and the fields: `message name=value name="two words"`, or the
// members of a JSON object. Printable ASCII; in text, what is none is \xNN, in
// JSON \uNNNN. In text a message with a `=` before fields is in quotes, too.
std::string LineText(const LogLine& line, LogOptions::Format format);

// At most what the line takes in the log, in either form, but for bytes that
// JSON needs more room for.
size_t LineBytes(const LogLine& line);

// spdlog's pattern of a whole line around that.
std::string LinePattern(LogOptions::Format format);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_LOG_FORM_H_
