#include "base/flags.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/decimal.h"

namespace attnd {
namespace {

// The flag of that name, of `app` or of any of its commands.
const CLI::Option* Find(const CLI::App& app, const std::string& name) {
  if (const CLI::Option* option = app.get_option_no_throw(name)) return option;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (const CLI::Option* option = Find(*command, name)) return option;
  }
  return nullptr;
}

// The arguments after the program's name, with `--flag=` as "--flag" and "",
// which is how CLI11 takes an empty value.
std::vector<std::string> Arguments(const CLI::App& app, int argc,
                                   const char* const* argv,
                                   const std::set<std::string>& may_be_empty) {
  std::vector<std::string> arguments;
  const auto add_empty_value = [&](const std::string& flag) {
    if (may_be_empty.count(flag) == 0) {
      throw CLI::ValidationError(flag, "its value is empty");
    }
    arguments.push_back("");
  };
  std::string waiting;  // the flag whose value is the next argument
  bool flags_ended = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool is_flag = !flags_ended && absl::StartsWith(argument, "--");
    if (!waiting.empty()) {
      if (is_flag) {
        throw CLI::ValidationError(waiting,
                                   absl::StrCat("its value is missing before ",
                                                absl::CHexEscape(argument)));
      }
      const std::string flag = std::exchange(waiting, "");
      if (argument.empty()) {
        add_empty_value(flag);
        continue;
      }
    } else if (is_flag) {
      flags_ended = argument == "--";
      const size_t equals = argument.find('=');
      const std::string name = argument.substr(0, equals);
      const CLI::Option* option = Find(app, name);
      if (option != nullptr && equals + 1 == argument.size()) {
        arguments.push_back(name);
        add_empty_value(name);
        continue;
      }
      if (option != nullptr && equals == std::string::npos &&
          option->get_items_expected_max() > 0) {
        waiting = name;
      }
    }
    arguments.push_back(argument);
  }
  return arguments;
}

std::string No(absl::string_view what, absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text), "\" is no ", what);
}

// Each makes `text` one that CLI11 reads as decimal, or says what is wrong.
template <typename Integer>
std::string MakeWhole(std::string& text) {
  Integer value;
  if (!absl::SimpleAtoi(text, &value))
    return No("whole decimal number of 64 bits", text);
  text = absl::StrCat(value);
  return "";
}

std::string MakeReal(std::string& text) {
  double value;
  return ParseDecimal(text, &value) ? "" : No("decimal number", text);
}

std::string MakeBytes(std::string& text) {
  const size_t digits =
      std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = text.substr(digits);
  uint64_t value;
  if (!absl::SimpleAtoi(text.substr(0, digits), &value) ||
      !std::all_of(unit.begin(), unit.end(), [](unsigned char c) {
        return absl::ascii_isalpha(c) || c == ' ';
      })) {
    return No("number of bytes such as 512MiB", text);
  }
  text = absl::StrCat(value, unit);
  return "";
}

// Runs before the other checks of every option that is a number.
void ReadNumbersAsDecimal(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // What CLI11 calls the type, and after a colon what else it checks.
    const std::string name = option->get_type_name();
    const std::string type = name.substr(0, name.find(':'));
    if (type == "INT") {
      option->transform(CLI::Validator(MakeWhole<int64_t>, ""));
    } else if (type == "UINT") {
      option->transform(CLI::Validator(MakeWhole<uint64_t>, ""));
    } else if (type == "FLOAT") {
      option->transform(CLI::Validator(MakeReal, ""));
    } else if (type == "BYTES") {
      option->transform(CLI::Validator(MakeBytes, ""));
    }
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    ReadNumbersAsDecimal(*command);
  }
}

}  // namespace

void ParseFlags(CLI::App& app, int argc, const char* const* argv,
                const std::set<std::string>& may_be_empty) {
  ReadNumbersAsDecimal(app);
  std::vector<std::string> arguments = Arguments(app, argc, argv, may_be_empty);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(std::move(arguments));
}

}  // namespace attnd
