#include "server/identity/token_lines.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/identity/options.h"

namespace attnd::server {
namespace {

constexpr size_t kLongestName = 64;
constexpr double kFewestShares = 0.01, kMostShares = 100;

bool IsName(absl::string_view word) {
  if (word.empty() || word.size() > kLongestName) return false;
  for (const char c : word) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_' && c != '-') {
      return false;
    }
  }
  return true;
}

std::optional<TokenHash> ParseHash(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "sha256:")) return std::nullopt;
  TokenHash hash;
  if (word.size() != 2 * hash.size()) return std::nullopt;
  for (const char c : word) {
    if (!absl::ascii_isxdigit(c)) return std::nullopt;
  }
  const std::string bytes = absl::HexStringToBytes(word);
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

// A decimal number from `least` to `most`.
std::optional<double> ParseNumber(absl::string_view text, double least,
                                  double most) {
  double value = 0;
  if (text.find_first_not_of("0123456789.eE+-") != absl::string_view::npos ||
      !absl::SimpleAtod(text, &value) || !(value >= least && value <= most)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> ParseBytes(absl::string_view text) {
  int shift = 0;
  for (const auto& [unit, bits] : {std::pair<absl::string_view, int>{"KiB", 10},
                                   {"MiB", 20},
                                   {"GiB", 30},
                                   {"TiB", 40}}) {
    if (absl::ConsumeSuffix(&text, unit)) {
      shift = bits;
      break;
    }
  }
  int64_t count = 0;
  if (text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &count) ||
      count > IdentityOptions::kMostBytes >> shift) {
    return std::nullopt;
  }
  return count << shift;
}

std::optional<Priority> ParsePriority(absl::string_view text) {
  if (text == "low") return Priority::kLow;
  if (text == "normal") return Priority::kNormal;
  if (text == "high") return Priority::kHigh;
  return std::nullopt;
}

// One "key=value" of an identity. INVALID_ARGUMENT: what is wrong.
absl::Status SetLimit(absl::string_view word, NamedIdentity& identity) {
  bool valid = false;
  absl::string_view expected;
  if (absl::ConsumePrefix(&word, "rate=")) {
    identity.calls_per_second =
        ParseNumber(word, 0, IdentityOptions::kMostCallsPerSecond);
    valid = identity.calls_per_second.has_value();
    expected = "rate= takes a number from 0 to 1e9";
  } else if (absl::ConsumePrefix(&word, "queued_bytes=")) {
    identity.queue_bytes = ParseBytes(word);
    valid = identity.queue_bytes.has_value();
    expected = "queued_bytes= takes bytes such as 512MiB, up to 1024TiB";
  } else if (absl::ConsumePrefix(&word, "queued_flops=")) {
    identity.queue_flops = ParseNumber(word, 0, IdentityOptions::kMostFlops);
    valid = identity.queue_flops.has_value();
    expected = "queued_flops= takes a number from 0 to 1e30";
  } else if (absl::ConsumePrefix(&word, "shares=")) {
    const auto shares = ParseNumber(word, kFewestShares, kMostShares);
    identity.shares = shares.value_or(1);
    valid = shares.has_value();
    expected = "shares= takes a number from 0.01 to 100";
  } else if (absl::ConsumePrefix(&word, "priority=")) {
    const auto priority = ParsePriority(word);
    identity.most_priority = priority.value_or(Priority::kNormal);
    valid = priority.has_value();
    expected = "priority= takes low, normal or high";
  } else {
    expected =
        "what follows the hash is rate=, queued_bytes=, queued_flops=, "
        "shares= or priority=, each with a value";
  }
  return valid ? absl::OkStatus() : absl::InvalidArgumentError(expected);
}

class Parser {
 public:
  // INVALID_ARGUMENT: what is wrong with the line.
  absl::Status Add(absl::string_view line);
  TokenSet Take() { return std::move(tokens_); }
  int64_t tokens() const { return tokens_.tokens(); }

 private:
  absl::Status AddLimits(const std::vector<absl::string_view>& words,
                         NamedIdentity& identity);

  const TokenHash empty_ = HashOf("");
  TokenSet tokens_;
  absl::flat_hash_map<std::string, int> by_name_;
};

absl::Status Parser::Add(absl::string_view line) {
  if (line.empty() || line.front() == '#') return absl::OkStatus();
  for (const char c : line) {
    if (c != '\t' && !absl::ascii_isprint(c)) {
      return absl::InvalidArgumentError(
          "has a character that is neither printable ASCII nor a blank");
    }
  }
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  if (!IsName(words[0])) {
    return absl::InvalidArgumentError(
        "begins with a name, 1 to 64 letters, digits, '.', '_' and '-'");
  }
  const std::optional<TokenHash> hash =
      words.size() < 2 ? std::nullopt : ParseHash(words[1]);
  if (!hash.has_value()) {
    return absl::InvalidArgumentError(
        "the second word is sha256: and 64 hexadecimal digits");
  }
  if (*hash == empty_) {
    return absl::InvalidArgumentError("the hash is that of an empty token");
  }
  if (tokens_.Has(*hash)) {
    return absl::InvalidArgumentError("an earlier line has the same hash");
  }
  if (tokens_.tokens() == kMostTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are more than ", kMostTokens, " tokens"));
  }
  auto known = by_name_.find(words[0]);
  if (known == by_name_.end()) {
    NamedIdentity identity;
    identity.name = std::string(words[0]);
    if (auto status = AddLimits(words, identity); !status.ok()) return status;
    known =
        by_name_.emplace(identity.name, tokens_.AddIdentity(identity)).first;
  } else if (words.size() > 2) {
    return absl::InvalidArgumentError(
        "an earlier line has the same name, and only that may have limits");
  }
  tokens_.AddToken(*hash, known->second);
  return absl::OkStatus();
}

absl::Status Parser::AddLimits(const std::vector<absl::string_view>& words,
                               NamedIdentity& identity) {
  for (size_t i = 2; i < words.size(); ++i) {
    const absl::string_view key = words[i].substr(0, words[i].find('=') + 1);
    for (size_t j = 2; j < i; ++j) {
      if (absl::StartsWith(words[j], key)) {
        return absl::InvalidArgumentError("a limit is given twice");
      }
    }
    if (auto status = SetLimit(words[i], identity); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenSet> ParseTokens(absl::string_view text) {
  Parser parser;
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    absl::Status status =
        end == absl::string_view::npos
            ? absl::InvalidArgumentError("does not end with a newline")
            : parser.Add(text.substr(0, end));
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(number, ": ", status.message()));
    }
    text.remove_prefix(end + 1);
  }
  if (parser.tokens() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(number, ": no line so far has a token"));
  }
  return parser.Take();
}

}  // namespace attnd::server
