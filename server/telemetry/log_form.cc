#include "server/telemetry/log_form.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/printable.h"

namespace attnd::server {
namespace {

using nlohmann::json;

// A value that needs no quotes to be read back as one word.
bool IsWord(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(c) && c != '"' && c != '=';
  });
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\\x22"}}), "\"");
}

std::string TextOf(const std::string& value) {
  const std::string text = attnd::Printable(
      value, {.escape_backslash = true, .max_bytes = kMaxFieldBytes});
  return IsWord(text) ? text : Quoted(text);
}
std::string TextOf(int64_t value) { return absl::StrCat(value); }
std::string TextOf(double value) { return absl::StrCat(value); }

std::string Cut(absl::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  return absl::StrCat(text.substr(0, most), "...");
}

std::string JsonOf(const json& value) {
  return value.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true,
                    json::error_handler_t::replace);
}

}  // namespace

std::string Printable(absl::string_view text) {
  return attnd::Printable(
      text, {.escape_backslash = true, .max_bytes = kMaxLineBytes});
}

std::string LineText(const LogLine& line, LogOptions::Format format) {
  if (format == LogOptions::Format::kText) {
    std::string text = Printable(line.message);
    // Clients choose what errors repeat. None of it looks like a field.
    if (!line.fields.empty() && absl::StrContains(text, '=')) {
      text = Quoted(text);
    }
    for (const auto& [name, value] : line.fields) {
      absl::StrAppend(
          &text, " ", name, "=",
          std::visit([](const auto& v) { return TextOf(v); }, value));
    }
    return text;
  }
  std::string text =
      absl::StrCat("\"message\":", JsonOf(Cut(line.message, kMaxLineBytes)));
  for (const auto& [name, value] : line.fields) {
    json cut = std::visit([](const auto& v) { return json(v); }, value);
    if (cut.is_string()) {
      cut = Cut(cut.get_ref<const std::string&>(), kMaxFieldBytes);
    }
    absl::StrAppend(&text, ",", JsonOf(name), ":", JsonOf(cut));
  }
  return text;
}

size_t LineBytes(const LogLine& line) {
  // The time of day, the level and, as JSON, names and quotes.
  constexpr size_t kForm = 80, kFormOfField = 5;
  return kForm + LineText(line, LogOptions::Format::kText).size() +
         kFormOfField * line.fields.size();
}

std::string LinePattern(LogOptions::Format format) {
  return format == LogOptions::Format::kText
             ? "%Y-%m-%dT%H:%M:%S.%eZ %l %v"
             : R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";
}

}  // namespace attnd::server
