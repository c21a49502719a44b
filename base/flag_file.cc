#include "base/flag_file.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/small_file.h"

namespace attnd {
namespace {

constexpr size_t kLineLength = 80;

bool IsQuote(char c) { return c == '"' || c == '\''; }

// What a line has after its `=`, without blanks around it and a comment behind.
// Throws CLI::ParseError with no more than what is wrong with it.
std::string ReadValue(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (!text.empty() && IsQuote(text[0])) {
    const size_t end = text.find(text[0], 1);
    if (end == absl::string_view::npos) {
      throw CLI::ConfigError("its value has no closing quote");
    }
    const absl::string_view rest =
        absl::StripLeadingAsciiWhitespace(text.substr(end + 1));
    if (!rest.empty() && rest[0] != '#') {
      throw CLI::ConfigError(
          absl::StrCat("something follows the closing quote of its value: ",
                       absl::CHexEscape(rest)));
    }
    return std::string(text.substr(1, end - 1));
  }
  const size_t comment = text.find('#');
  if (comment != absl::string_view::npos) {
    if (comment > 0 && !absl::ascii_isspace(text[comment - 1])) {
      throw CLI::ConfigError(
          "its value has a #: put the value into quotes, or a blank before "
          "the comment");
    }
    text = absl::StripTrailingAsciiWhitespace(text.substr(0, comment));
  }
  return std::string(text);
}

// As if it came from the command line.
void Set(CLI::Option& option, const std::string& value) {
  if (option.get_items_expected_max() == 0) {
    option.add_result(option.get_flag_value(option.get_lnames().at(0), value));
  } else {
    option.add_result(value);
  }
  option.run_callback();
}

class Reader {
 public:
  Reader(CLI::App& app, const std::set<std::string>& may_be_empty)
      : app_(app), may_be_empty_(may_be_empty) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->count() > 0) given_.insert(option);
    }
  }

  // Throws CLI::ParseError, which does not say yet where.
  void ReadLine(absl::string_view line, int number) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') return;
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) {
      throw CLI::ConfigError(absl::StrCat(
          "\"", absl::CHexEscape(line), "\" is not of the form flag = value"));
    }
    const std::string name(
        absl::StripTrailingAsciiWhitespace(line.substr(0, equals)));
    CLI::Option* option = Find(name);
    const std::string flag = "--" + name;
    const auto [before, first] = lines_.emplace(name, number);
    if (!first) {
      throw CLI::ConfigError(
          absl::StrCat(flag, ": line ", before->second, " has it already"));
    }
    std::string value;
    try {
      value = ReadValue(line.substr(equals + 1));
    } catch (const CLI::ConfigError& error) {
      throw CLI::ConfigError(absl::StrCat(flag, ": ", error.what()));
    }
    if (value.empty() && may_be_empty_.count(flag) == 0) {
      throw CLI::ConfigError(absl::StrCat(flag, ": its value is empty"));
    }
    if (given_.count(option) == 0) Set(*option, value);
  }

 private:
  CLI::Option* Find(const std::string& name) {
    CLI::Option* option = app_.get_option_no_throw("--" + name);
    if (name.empty() || option == nullptr) {
      throw CLI::ConfigError(absl::StrCat(
          "\"", absl::CHexEscape(name),
          "\" is no flag; flags are written without their dashes"));
    }
    if (!option->get_configurable()) {
      throw CLI::ConfigError(
          absl::StrCat("--", name, ": it is for the command line alone"));
    }
    return option;
  }

  CLI::App& app_;
  const std::set<std::string>& may_be_empty_;
  std::set<const CLI::Option*> given_;  // by the command line
  std::map<std::string, int> lines_;    // of each flag in the file
};

// `text` as comments, in lines that are no longer than they need be.
std::string Comment(absl::string_view text) {
  std::string lines, line;
  for (absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (!line.empty() && line.size() + 1 + word.size() > kLineLength) {
      absl::StrAppend(&lines, std::exchange(line, ""), "\n");
    }
    absl::StrAppend(&line, line.empty() ? "# " : " ", word);
  }
  return absl::StrCat(lines, line, "\n");
}

std::string Quoted(const std::string& value) {
  const bool plain = absl::StripAsciiWhitespace(value) == value &&
                     !absl::StrContains(value, "#") &&
                     (value.empty() || !IsQuote(value[0]));
  if (plain) return value;
  const char* quote = absl::StrContains(value, "\"") ? "'" : "\"";
  return absl::StrCat(quote, value, quote);
}

// What `option` has when it is not given.
std::string Default(const CLI::Option& option) {
  std::string text = option.get_default_str();
  // CLI11's word for a list of nothing.
  if (text == "[]" || text == "{}") text.clear();
  const bool is_switch = option.get_items_expected_max() == 0;
  return text.empty() && is_switch ? "false" : text;
}

}  // namespace

void ReadFlagFile(CLI::App& app, const std::string& path,
                  const std::set<std::string>& may_be_empty) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok()) throw CLI::FileError(std::string(text.status().message()));
  Reader reader(app, may_be_empty);
  int number = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    try {
      reader.ReadLine(line, number);
    } catch (const CLI::ParseError& error) {
      throw CLI::ConfigError(
          absl::StrCat(path, ":", number, ": ", error.what()));
    }
  }
}

std::string WriteFlagFile(const CLI::App& app) {
  std::string text;
  for (const std::string& group : app.get_groups()) {
    std::string flags;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() != group || !option->get_configurable()) continue;
      const bool given = option->count() > 0;
      const std::string value =
          given ? absl::StrJoin(option->results(), ",") : Default(*option);
      absl::StrAppend(&flags, "\n", Comment(option->get_description()),
                      given ? "" : "#", option->get_lnames().at(0), " =",
                      value.empty() ? "" : " ", Quoted(value), "\n");
    }
    if (!flags.empty()) absl::StrAppend(&text, "\n## ", group, "\n", flags);
  }
  return text;
}

}  // namespace attnd
