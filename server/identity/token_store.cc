#include "server/identity/token_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

constexpr absl::string_view kFlag = "--token_file: ";

}  // namespace

absl::StatusOr<std::unique_ptr<TokenStore>> TokenStore::Open(
    const std::string& path, WriteLine write) {
  absl::StatusOr<TokenFile> file = ReadTokenFile(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat(kFlag, file.status().message()));
  }
  return std::unique_ptr<TokenStore>(
      new TokenStore(path, std::move(write), *std::move(file)));
}

TokenStore::TokenStore(std::string path, WriteLine write, TokenFile file)
    : path_(std::move(path)),
      write_(std::move(write)),
      seen_(file.stamp),
      settled_(file.stamp),
      tokens_(std::make_shared<const TokenSet>(std::move(file.tokens))) {}

void TokenStore::Look(absl::Time now) {
  const FileStamp stamp = StampOf(path_);
  if (stamp != settled_ && stamp == seen_) {
    absl::StatusOr<TokenFile> file = ReadTokenFile(path_);
    settled_ = stamp;
    file_good_ = file.ok();
    if (!file.ok()) {
      untold_level_ = LogLevel::kError;
      untold_ = absl::StrCat(kFlag, file.status().message(),
                             "; the tokens known so far stay");
    } else {
      settled_ = file->stamp;
      Take(*std::move(file));
    }
  }
  seen_ = stamp;
  if (untold_.empty() || now < next_line_) return;
  if (write_) write_({untold_level_, untold_});
  untold_.clear();
  next_line_ = now + kLineEvery;
}

void TokenStore::Take(TokenFile file) {
  untold_ = absl::StrCat(kFlag, "read anew, ", file.tokens.identities().size(),
                         " names with ", file.tokens.tokens(), " tokens");
  auto tokens = std::make_shared<const TokenSet>(std::move(file.tokens));
  MutexLock lock(mutex_);
  tokens_.swap(tokens);
}

std::shared_ptr<const TokenSet> TokenStore::tokens() const {
  MutexLock lock(mutex_);
  return tokens_;
}

}  // namespace attnd::server
