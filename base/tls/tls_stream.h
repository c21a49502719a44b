#ifndef ATTND_BASE_TLS_TLS_STREAM_H_
#define ATTND_BASE_TLS_TLS_STREAM_H_

// TLS on a socket that does not block.

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/tls/openssl.h"

namespace attnd {

// Thread-safe, as a socket is for one thread that reads and one that writes.
class TlsStream {
 public:
  enum class Step { kDone, kWantsToRead, kWantsToWrite, kFailed };

  // `fd` is connected once the handshake begins, and stays its owner's. `ssl`
  // knows which end of TLS this is, and who its peer must prove to be. Null:
  // there is no memory, or was none for `ssl`.
  static std::unique_ptr<TlsStream> Start(int fd, SslPtr ssl);

  // Goes on with the handshake as far as it gets: again once the socket can be
  // read, or written, until it is done or has failed. What the peer sends after
  // it stays with the socket.
  Step Handshake();
  // Why it has failed, for the log.
  const std::string& failure() const { return failure_; }
  // Once it is done: what the peer has proved to own; null: nothing was asked.
  X509* peer_certificate() const { return SSL_get0_peer_certificate(ssl()); }
  STACK_OF(X509) * peer_chain() const { return SSL_get_peer_cert_chain(ssl()); }

  // Whether both ends have agreed on `protocol`, by ALPN.
  bool speaks(absl::string_view protocol) const;
  // X509_V_OK, or what is wrong with the peer's certificate.
  int verify_result() const {
    return static_cast<int>(SSL_get_verify_result(ssl()));
  }

  // As the system's readv and writev, with EAGAIN where the socket has no more,
  // or takes no more, and so tells who waits for it. Bytes count as sent when
  // the system has them. ECONNRESET: the peer ended without saying so.
  ssize_t Receive(absl::Span<const iovec> into);
  ssize_t Send(absl::Span<const iovec> from);
  // Tells the peer that nothing more is sent.
  void SayGoodbye();

 private:
  explicit TlsStream(int fd);

  SSL* ssl() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return ssl_.get(); }
  static int BioRead(BIO* bio, char* to, int bytes);
  static int BioWrite(BIO* bio, const char* from, int bytes);
  static long BioControl(BIO* bio, int command, long, void*);  // NOLINT
  static const BIO_METHOD* Method();

  bool Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t Encrypt(absl::Span<const iovec> from, size_t skip)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  std::string failure_;
  Mutex mutex_;
  SslPtr ssl_ ABSL_GUARDED_BY(mutex_);
  // Records that the system has still to take, from flushed_ on.
  std::string out_ ABSL_GUARDED_BY(mutex_);
  size_t flushed_ ABSL_GUARDED_BY(mutex_) = 0;
  // Bytes of the caller's that are in them, and do not count as sent yet.
  size_t unreported_ ABSL_GUARDED_BY(mutex_) = 0;
  int error_ ABSL_GUARDED_BY(mutex_) = 0;  // an errno of the socket's
  std::string gathered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd

#endif  // ATTND_BASE_TLS_TLS_STREAM_H_
