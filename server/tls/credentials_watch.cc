#include "server/tls/credentials_watch.h"

#include <utility>

namespace attnd::server::tls {

absl::StatusOr<std::unique_ptr<CredentialsWatch>> CredentialsWatch::Start(
    const CredentialFiles& files) {
  auto text = CredentialText::Read(files);
  if (!text.ok()) return text.status();
  auto credentials = Credentials::Create(*text, files);
  if (!credentials.ok()) return credentials.status();
  return std::unique_ptr<CredentialsWatch>(
      new CredentialsWatch(files, *std::move(text), *std::move(credentials)));
}

CredentialsWatch::CredentialsWatch(
    CredentialFiles files, CredentialText text,
    std::shared_ptr<const Credentials> credentials)
    : files_(std::move(files)),
      good_text_(std::move(text)),
      current_(std::move(credentials)) {}

std::shared_ptr<const Credentials> CredentialsWatch::current() const {
  MutexLock lock(mutex_);
  return current_;
}

std::optional<absl::Status> CredentialsWatch::Look() {
  auto text = CredentialText::Read(files_);
  absl::Status fault = text.status();
  if (text.ok()) {
    if (*text == good_text_) {
      fault_.reset();
      return std::nullopt;
    }
    auto credentials = Credentials::Create(*text, files_);
    fault = credentials.status();
    if (credentials.ok()) {
      good_text_ = *std::move(text);
      fault_.reset();
      MutexLock lock(mutex_);
      current_ = *std::move(credentials);
      return absl::OkStatus();
    }
  }
  const bool has_stayed = fault_ == fault;
  if (!has_stayed) has_told_fault_ = false;
  fault_ = fault;
  if (!has_stayed || std::exchange(has_told_fault_, true)) return std::nullopt;
  return fault;
}

}  // namespace attnd::server::tls
