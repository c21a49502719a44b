#include "client/tls_guard/client_guard.h"

#include <openssl/x509_vfy.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::client {
namespace {

absl::Span<const iovec> Pieces(const msghdr& message) {
  return {message.msg_iov, message.msg_iovlen};
}

}  // namespace

ClientGuard::ClientGuard(std::unique_ptr<TlsStream> tls, std::string name,
                         std::function<void(std::string)> report)
    : tls_(std::move(tls)),
      name_(std::move(name)),
      report_(std::move(report)) {}

ssize_t ClientGuard::Receive(msghdr* message, int /*flags*/) {
  if (!is_open_.load(std::memory_order_acquire)) {
    MutexLock lock(mutex_);
    if (!GoOn()) return -1;
  }
  const ssize_t bytes = tls_->Receive(Pieces(*message));
  message->msg_controllen = 0;
  message->msg_flags = 0;
  return bytes;
}

ssize_t ClientGuard::Send(const msghdr* message, int /*flags*/) {
  const absl::Span<const iovec> pieces = Pieces(*message);
  if (!is_open_.load(std::memory_order_acquire)) {
    MutexLock lock(mutex_);
    if (!is_open_.load(std::memory_order_relaxed)) {
      size_t bytes = 0;
      for (const iovec& piece : pieces) {
        kept_.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
        bytes += piece.iov_len;
      }
      if (!GoOn() && errno != EAGAIN) return -1;
      return static_cast<ssize_t>(bytes);
    }
  }
  return tls_->Send(pieces);
}

bool ClientGuard::GoOn() {
  if (is_open_.load(std::memory_order_relaxed)) return true;
  if (has_failed_) {
    errno = ECONNRESET;
    return false;
  }
  switch (tls_->Handshake()) {
    case TlsStream::Step::kDone:
      break;
    case TlsStream::Step::kWantsToRead:
      errno = EAGAIN;
      return false;
    case TlsStream::Step::kWantsToWrite:
      // Nobody would be told when it can be. A new connection takes tens of
      // kilobytes, and a handshake has a few.
      return Fail("the handshake is larger than what a connection takes");
    case TlsStream::Step::kFailed:
      return Fail(Reason());
  }
  // As gRPC says it.
  if (!tls_->speaks("h2")) return Fail("missing selected ALPN property");
  if (!kept_.empty()) {
    const iovec all = {kept_.data(), kept_.size()};
    if (tls_->Send({&all, 1}) != static_cast<ssize_t>(kept_.size())) {
      return Fail("the connection ended");
    }
    kept_ = {};
  }
  report_("");
  is_open_.store(true, std::memory_order_release);
  return true;
}

bool ClientGuard::Fail(std::string why) {
  has_failed_ = true;
  kept_ = {};
  report_(std::move(why));
  errno = ECONNRESET;
  return false;
}

std::string ClientGuard::Reason() const {
  const int verified = tls_->verify_result();
  switch (verified) {
    case X509_V_OK:
      return tls_->failure();
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      // As gRPC says it.
      return absl::StrCat("Peer name ", name_, " is not in peer certificate");
    default:
      return absl::StrCat(tls_->failure(), ": ",
                          X509_verify_cert_error_string(verified));
  }
}

bool ClientGuard::Goodbye() {
  if (is_open_.load(std::memory_order_acquire)) tls_->SayGoodbye();
  return true;
}

}  // namespace attnd::client
