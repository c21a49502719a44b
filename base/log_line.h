#ifndef ATTND_BASE_LOG_LINE_H_
#define ATTND_BASE_LOG_LINE_H_

// What a part of the program tells its operator: a sentence, and beside it
// fields that a machine can search for. Who writes it chooses the form.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace attnd {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

struct LogField {
  std::string name;  // snake_case, with its unit
  std::variant<std::string, int64_t, double> value;
};

struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string message;
  std::vector<LogField> fields = {};
};

// Takes a line. Never blocks, on any thread. Empty: nobody is told.
using WriteLine = std::function<void(const LogLine&)>;
// Is told that a line was not written, as there were too many. Never blocks, on
// any thread. Empty: nobody counts.
using LeaveOutLine = std::function<void()>;

}  // namespace attnd

#endif  // ATTND_BASE_LOG_LINE_H_
