#include "server/admin/json.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attnd::server {
namespace {

// Text as JSON has it. Bytes that are no ASCII are UTF-8 already.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

void JsonWriter::Begin(absl::string_view name) {
  if (!closing_.empty()) {
    absl::StrAppend(&text_, first_ ? "\n" : ",\n",
                    std::string(2 * closing_.size(), ' '));
  }
  first_ = false;
  if (!name.empty()) absl::StrAppend(&text_, Quoted(name), ": ");
}

void JsonWriter::Open(absl::string_view name, char bracket) {
  Begin(name);
  text_ += bracket;
  closing_ += bracket == '{' ? '}' : ']';
  first_ = true;
}

void JsonWriter::Close() {
  const char bracket = closing_.back();
  closing_.pop_back();
  if (!std::exchange(first_, false)) {
    absl::StrAppend(&text_, "\n", std::string(2 * closing_.size(), ' '));
  }
  text_ += bracket;
}

void JsonWriter::Value(absl::string_view name, absl::string_view value) {
  Begin(name);
  absl::StrAppend(&text_, value);
}

void JsonWriter::Add(absl::string_view name, absl::string_view text) {
  Value(name, Quoted(text));
}

void JsonWriter::Add(absl::string_view name, int64_t value) {
  Value(name, absl::StrCat(value));
}

void JsonWriter::Add(absl::string_view name, double value) {
  Value(name, std::isfinite(value) ? absl::StrFormat("%.15g", value) : "null");
}

std::string JsonWriter::Take() {
  while (!closing_.empty()) Close();
  text_ += '\n';
  return std::move(text_);
}

}  // namespace attnd::server
