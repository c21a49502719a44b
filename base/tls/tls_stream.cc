#include "base/tls/tls_stream.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace attnd {
namespace {

// What a record carries at most.
constexpr size_t kRecordBytes = 16 << 10;
// What is encrypted before the system gets it, so that it is called once for
// several records. No more, as the peer decrypts these while the next ones are
// encrypted.
constexpr size_t kBatchBytes = 64 << 10;

}  // namespace

std::unique_ptr<TlsStream> TlsStream::Start(int fd, SslPtr ssl) {
  if (ssl == nullptr) return nullptr;
  BIO* const bio = BIO_new(Method());
  if (bio == nullptr) return nullptr;
  std::unique_ptr<TlsStream> stream(new TlsStream(fd));
  MutexLock lock(stream->mutex_);
  stream->ssl_ = std::move(ssl);
  BIO_set_data(bio, stream.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(stream->ssl_.get(), bio, bio);
  lock.Unlock();
  return stream;
}

TlsStream::TlsStream(int fd) : fd_(fd) {}

const BIO_METHOD* TlsStream::Method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "attnd");
    BIO_meth_set_read(made, &TlsStream::BioRead);
    BIO_meth_set_write(made, &TlsStream::BioWrite);
    BIO_meth_set_ctrl(made, &TlsStream::BioControl);
    return made;
  }();
  return method;
}

// Called by OpenSSL, under the lock of whoever called that.
int TlsStream::BioRead(BIO* bio, char* to,
                       int bytes) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t got =
      recv(stream.fd_, to, static_cast<size_t>(bytes), MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) {
      BIO_set_retry_read(bio);
    } else {
      stream.error_ = errno;
    }
  }
  return static_cast<int>(got);
}

int TlsStream::BioWrite(BIO* bio, const char* from,
                        int bytes) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static_cast<TlsStream*>(BIO_get_data(bio))
      ->out_.append(from, static_cast<size_t>(bytes));
  return bytes;
}

long TlsStream::BioControl(BIO*, int command, long, void*) {  // NOLINT
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

TlsStream::Step TlsStream::Handshake() {
  MutexLock lock(mutex_);
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  const int error = SSL_get_error(ssl_.get(), done);
  // A reason for the peer, too.
  const bool is_flushed = Flush();
  if (done == 1) {
    if (!is_flushed && error_ == 0) return Step::kWantsToWrite;
    if (!is_flushed) {
      failure_ = "the connection ended";
      return Step::kFailed;
    }
    // Until now what follows the handshake has been left with the socket, for
    // who waits until that can be read.
    SSL_set_read_ahead(ssl_.get(), 1);
    return Step::kDone;
  }
  if (error == SSL_ERROR_WANT_READ && error_ == 0) {
    return is_flushed ? Step::kWantsToRead : Step::kWantsToWrite;
  }
  failure_ = TakeTlsError();
  if (failure_.empty()) failure_ = "the connection ended";
  return Step::kFailed;
}

bool TlsStream::speaks(absl::string_view protocol) const {
  const unsigned char* chosen = nullptr;
  unsigned int bytes = 0;
  SSL_get0_alpn_selected(ssl(), &chosen, &bytes);
  return protocol ==
         absl::string_view(reinterpret_cast<const char*>(chosen), bytes);
}

ssize_t TlsStream::Receive(absl::Span<const iovec> into) {
  MutexLock lock(mutex_);
  ERR_clear_error();
  size_t total = 0;
  int error = SSL_ERROR_NONE;
  for (const iovec& piece : into) {
    size_t filled = 0;
    while (filled < piece.iov_len && error == SSL_ERROR_NONE) {
      size_t got = 0;
      const int read =
          SSL_read_ex(ssl_.get(), static_cast<char*>(piece.iov_base) + filled,
                      piece.iov_len - filled, &got);
      if (read != 1) error = SSL_get_error(ssl_.get(), read);
      filled += got;
    }
    total += filled;
    if (error != SSL_ERROR_NONE) break;
  }
  // An answer to the peer, such as a reason, or a new key.
  Flush();
  if (total > 0 || into.empty()) return static_cast<ssize_t>(total);
  if (error == SSL_ERROR_NONE || error == SSL_ERROR_ZERO_RETURN) return 0;
  if (error == SSL_ERROR_WANT_READ) {
    errno = EAGAIN;
  } else {
    errno = error_ != 0 ? error_ : ECONNRESET;
  }
  ERR_clear_error();
  return -1;
}

ssize_t TlsStream::Send(absl::Span<const iovec> from) {
  MutexLock lock(mutex_);
  size_t total = 0;
  for (const iovec& piece : from) total += piece.iov_len;
  size_t sent = 0;
  while (Flush()) {
    sent += std::exchange(unreported_, 0);
    if (sent >= total) return static_cast<ssize_t>(sent);
    ERR_clear_error();
    unreported_ = Encrypt(from, sent);
    if (unreported_ == 0) {
      error_ = EPIPE;
      ERR_clear_error();
      break;
    }
  }
  if (sent > 0) return static_cast<ssize_t>(sent);
  errno = error_ != 0 ? error_ : EAGAIN;
  return -1;
}

// Encrypts a batch of the bytes that follow the first `skip`, and says how many
// it took.
size_t TlsStream::Encrypt(absl::Span<const iovec> from, size_t skip) {
  size_t taken = 0;
  const auto encrypt =
      [this, &taken](const char* bytes, size_t size)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            size_t written = 0;
            if (SSL_write_ex(ssl_.get(), bytes, size, &written) != 1)
              return false;
            taken += size;
            return true;
          };
  gathered_.clear();
  for (const iovec& piece : from) {
    const size_t skipped = std::min(skip, piece.iov_len);
    skip -= skipped;
    const char* bytes = static_cast<const char*>(piece.iov_base) + skipped;
    size_t left = piece.iov_len - skipped;
    while (left > 0 && taken + gathered_.size() < kBatchBytes) {
      // Whole records straight from where they are; small pieces together.
      if (gathered_.empty() && left >= kRecordBytes) {
        if (!encrypt(bytes, kRecordBytes)) return taken;
        bytes += kRecordBytes;
        left -= kRecordBytes;
        continue;
      }
      const size_t some = std::min(left, kRecordBytes - gathered_.size());
      gathered_.append(bytes, some);
      bytes += some;
      left -= some;
      if (gathered_.size() < kRecordBytes) continue;
      if (!encrypt(gathered_.data(), gathered_.size())) return taken;
      gathered_.clear();
    }
  }
  if (!gathered_.empty()) encrypt(gathered_.data(), gathered_.size());
  return taken;
}

// Gives the system what it takes. Whether that was all; it was not, with
// error_, if the connection has ended.
bool TlsStream::Flush() {
  while (flushed_ < out_.size() && error_ == 0) {
    const ssize_t sent =
        send(fd_, out_.data() + flushed_, out_.size() - flushed_,
             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      flushed_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  if (flushed_ < out_.size()) return false;
  out_.clear();
  flushed_ = 0;
  return error_ == 0;
}

void TlsStream::SayGoodbye() {
  MutexLock lock(mutex_);
  if (error_ != 0 || !SSL_is_init_finished(ssl_.get())) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  Flush();
  ERR_clear_error();
}

}  // namespace attnd
