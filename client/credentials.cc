#include "client/credentials.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/small_file.h"
#include "client/loopback.h"
#include "client/pem.h"
#include "client/token.h"
#include "client/unix_socket.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

// A text that options hold, or the file that they name.
class Source {
 public:
  // INVALID_ARGUMENT, naming the option: the file cannot be read.
  static absl::StatusOr<Source> Read(absl::string_view option,
                                     const std::string& text,
                                     const std::string& file) {
    Source source;
    source.text_ = text;
    source.option_ = absl::StrCat(option, file.empty() ? "_pem" : "_file");
    if (file.empty()) return source;
    absl::StatusOr<std::string> read = ReadSmallFile(file);
    if (!read.ok()) {
      return wire::FieldError(source.option_, read.status().message());
    }
    source.file_ = file;
    source.text_ = *std::move(read);
    return source;
  }

  const std::string& text() const { return text_; }
  bool given() const { return !text_.empty() || !file_.empty(); }

  // A check of the text that failed, with the option's name and the file's.
  absl::Status Refuse(const absl::Status& check) const {
    return wire::FieldError(
        option_, file_.empty() ? std::string(check.message())
                               : absl::StrCat(file_, ": ", check.message()));
  }

 private:
  std::string option_, file_, text_;
};

bool HasToken(const ClientOptions& options) {
  return !options.token.empty() || !options.token_file.empty();
}

absl::Status CheckTarget(const std::string& target,
                         const ClientOptions& options) {
  const bool on_unix_socket = UnixSocket::Names(target);
  if (options.tls.enabled && on_unix_socket) {
    return wire::FieldError(
        "tls.enabled",
        "there is no TLS over a unix socket, which the system protects");
  }
  if (!HasToken(options) || options.tls.enabled || options.insecure_token ||
      on_unix_socket || IsLoopbackTarget(target)) {
    return absl::OkStatus();
  }
  return wire::FieldError(
      options.token.empty() ? "token_file" : "token",
      absl::StrCat("without TLS whoever is on the way to ", wire::Echo(target),
                   " could read the token"));
}

absl::Status CheckOwn(const Source& certificate, const Source& key) {
  absl::Status check = CheckCertificates(certificate.text());
  if (check.ok()) check = CheckUsable(certificate.text());
  if (!check.ok()) return certificate.Refuse(check);
  check = CheckKey(key.text());
  if (check.ok()) check = CheckPair(certificate.text(), key.text());
  return check.ok() ? check : key.Refuse(check);
}

}  // namespace

Credentials::Credentials(const ClientOptions& options, bool stays_on_host)
    : options_(options), stays_on_host_(stays_on_host) {}

absl::StatusOr<std::shared_ptr<Credentials>> Credentials::Load(
    const std::string& target, const ClientOptions& options) {
  const absl::Status status = CheckTarget(target, options);
  if (!status.ok()) return status;
  const bool in_clear = HasToken(options) && !options.tls.enabled;
  std::shared_ptr<Credentials> credentials(
      new Credentials(options, in_clear && IsLoopbackTarget(target)));
  MutexLock lock(credentials->mutex_);
  if (options.tls.enabled) {
    auto tls = credentials->ReadTls(nullptr);
    if (!tls.ok()) return tls.status();
    credentials->tls_ = *std::move(tls);
  }
  if (HasToken(options)) {
    absl::StatusOr<std::string> read = credentials->ReadAuthorization();
    if (!read.ok()) return read.status();
    credentials->authorization_ =
        std::make_shared<const std::string>(*std::move(read));
  }
  return credentials;
}

std::shared_ptr<const Credentials::Tls> Credentials::tls() const {
  MutexLock lock(mutex_);
  return tls_;
}

std::shared_ptr<const std::string> Credentials::authorization() const {
  MutexLock lock(mutex_);
  return authorization_;
}

absl::Status Credentials::renewal() const {
  MutexLock lock(mutex_);
  return renewal_;
}

bool Credentials::renewable() const {
  const TlsOptions& tls = options_.tls;
  return !tls.ca_file.empty() || !tls.certificate_file.empty() ||
         !tls.key_file.empty() || !options_.token_file.empty();
}

void Credentials::Renew() {
  absl::Status status;
  std::shared_ptr<const Tls> fresh_tls = tls();
  if (fresh_tls != nullptr) {
    auto read = ReadTls(fresh_tls);
    status.Update(read.status());
    if (read.ok()) fresh_tls = *std::move(read);
  }
  std::shared_ptr<const std::string> fresh = authorization();
  if (fresh != nullptr) {
    absl::StatusOr<std::string> read = ReadAuthorization();
    status.Update(read.status());
    if (read.ok() && *read != *fresh) {
      fresh = std::make_shared<const std::string>(*std::move(read));
    }
  }
  MutexLock lock(mutex_);
  tls_ = std::move(fresh_tls);
  authorization_ = std::move(fresh);
  renewal_ = std::move(status);
}

absl::StatusOr<std::shared_ptr<const Credentials::Tls>> Credentials::ReadTls(
    std::shared_ptr<const Tls> current) const {
  const TlsOptions& o = options_.tls;
  const auto authorities = Source::Read("tls.ca", o.ca_pem, o.ca_file);
  if (!authorities.ok()) return authorities.status();
  const auto certificate =
      Source::Read("tls.certificate", o.certificate_pem, o.certificate_file);
  if (!certificate.ok()) return certificate.status();
  const auto key = Source::Read("tls.key", o.key_pem, o.key_file);
  if (!key.ok()) return key.status();
  Tls read{authorities->text(), certificate->text(), key->text()};
  if (current != nullptr && read == *current) return current;

  if (authorities->given()) {
    const absl::Status check = CheckCertificates(authorities->text());
    if (!check.ok()) return authorities->Refuse(check);
  }
  if (certificate->given()) {
    const absl::Status check = CheckOwn(*certificate, *key);
    if (!check.ok()) return check;
  }
  return std::make_shared<const Tls>(std::move(read));
}

absl::StatusOr<std::string> Credentials::ReadAuthorization() const {
  // Options have checked what they hold themselves.
  if (options_.token_file.empty()) {
    return absl::StrCat("Bearer ", options_.token);
  }
  const auto text = ReadSmallFile(options_.token_file);
  if (!text.ok()) {
    return wire::FieldError("token_file", text.status().message());
  }
  const auto token = TokenIn(*text);
  if (!token.ok()) {
    return wire::FieldError(
        "token_file",
        absl::StrCat(options_.token_file, ": ", token.status().message()));
  }
  return absl::StrCat("Bearer ", *token);
}

void KeepRenewed(std::shared_ptr<Credentials> credentials, Executor& executor) {
  executor.PostAfter(kRenewalInterval,
                     [credentials = std::move(credentials), &executor] {
                       credentials->Renew();
                       KeepRenewed(credentials, executor);
                     });
}

}  // namespace attnd::client
