#ifndef ATTND_SERVER_TLS_TLS_STREAM_H_
#define ATTND_SERVER_TLS_TLS_STREAM_H_

// The server's end of TLS on a socket that does not block.

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "server/tls/credentials.h"
#include "server/tls/openssl.h"

namespace attnd::server::tls {

// Thread-safe, as a socket is for one thread that reads and one that writes.
class TlsStream {
 public:
  enum class Step { kDone, kWantsToRead, kWantsToWrite, kFailed };

  // `fd` is connected and stays its owner's; whoever is at its other end must
  // prove to be known to `credentials`, if these ask for it.
  static std::unique_ptr<TlsStream> Start(
      int fd, std::shared_ptr<const Credentials> credentials);

  // Goes on with the handshake as far as it gets: again once the socket can be
  // read, or written, until it is done or has failed. What the peer sends after
  // it stays with the socket.
  Step Handshake();
  // Why it has failed, for the log.
  const std::string& failure() const { return failure_; }
  // Once it is done: what the peer has proved to own; null: nothing was asked.
  X509* peer_certificate() const { return SSL_get0_peer_certificate(ssl()); }
  STACK_OF(X509) * peer_chain() const { return SSL_get_peer_cert_chain(ssl()); }

  // As the system's readv and writev, with EAGAIN where the socket has no more,
  // or takes no more, and so tells who waits for it. Bytes count as sent when
  // the system has them. ECONNRESET: the peer ended without saying so.
  ssize_t Receive(absl::Span<const iovec> into);
  ssize_t Send(absl::Span<const iovec> from);
  // Tells the peer that nothing more is sent.
  void SayGoodbye();

 private:
  TlsStream(int fd, std::shared_ptr<const Credentials> credentials);

  SSL* ssl() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return ssl_.get(); }
  static int BioRead(BIO* bio, char* to, int bytes);
  static int BioWrite(BIO* bio, const char* from, int bytes);
  static long BioControl(BIO* bio, int command, long, void*);  // NOLINT
  static const BIO_METHOD* Method();

  bool Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t Encrypt(absl::Span<const iovec> from, size_t skip)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  const std::shared_ptr<const Credentials> credentials_;
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

}  // namespace attnd::server::tls

#endif  // ATTND_SERVER_TLS_TLS_STREAM_H_
