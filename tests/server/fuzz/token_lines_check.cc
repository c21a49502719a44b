#include "tests/server/fuzz/token_lines_check.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/identity/options.h"
#include "server/identity/token_lines.h"

namespace attnd::server {
namespace {

bool IsWithin(const NamedIdentity& identity) {
  const double rate = identity.calls_per_second.value_or(0);
  const int64_t bytes = identity.queue_bytes.value_or(0);
  const double flops = identity.queue_flops.value_or(0);
  return !identity.name.empty() && identity.name.size() <= 64 && rate >= 0 &&
         rate <= IdentityOptions::kMostCallsPerSecond && bytes >= 0 &&
         bytes <= IdentityOptions::kMostBytes && flops >= 0 &&
         flops <= IdentityOptions::kMostFlops && identity.shares >= 0.01 &&
         identity.shares <= 100;
}

// As long as any part of a hash that would help.
bool HasHexRun(absl::string_view text) {
  int run = 0;
  for (const char c : text) {
    run = absl::ascii_isxdigit(c) ? run + 1 : 0;
    if (run >= 8) return true;
  }
  return false;
}

absl::Status CheckRefusal(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) {
    return absl::InternalError(
        absl::StrCat("refused with ", status.ToString()));
  }
  if (HasHexRun(status.message()) || status.message().size() > 200) {
    return absl::InternalError(absl::StrCat("tells: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status CheckParts(absl::string_view text, const TokenSet& whole) {
  const size_t step = text.size() / 6 + 1;
  for (size_t end = 1; end < text.size(); end += step) {
    const auto part = ParseTokens(text.substr(0, end));
    if (!part.ok()) {
      if (auto status = CheckRefusal(part.status()); !status.ok())
        return status;
    } else if (text[end - 1] != '\n' || part->tokens() > whole.tokens()) {
      return absl::InternalError(absl::StrCat("a part of ", end, " is good"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTokenLines(absl::string_view text, bool* accepted) {
  const absl::StatusOr<TokenSet> tokens = ParseTokens(text);
  if (accepted != nullptr) *accepted = tokens.ok();
  if (!tokens.ok()) return CheckRefusal(tokens.status());
  if (tokens->tokens() < 1 || tokens->tokens() > kMostTokens ||
      tokens->tokens() < tokens->identities().size()) {
    return absl::InternalError("a wrong number of tokens");
  }
  for (const NamedIdentity& identity : tokens->identities()) {
    if (!IsWithin(identity)) return absl::InternalError(identity.name);
  }
  return CheckParts(text, *tokens);
}

}  // namespace attnd::server
