#ifndef ATTND_TESTS_TLS_CLIENT_H_
#define ATTND_TESTS_TLS_CLIENT_H_

// The client's end of TLS on a socket, for what no gRPC library would send.

#include <openssl/ssl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace attnd::testing {

struct TlsClientOptions {
  std::string ca = {};           // PEM; whom it trusts. Empty: everybody
  std::string certificate = {};  // PEM; its own, and the key to it
  std::string key = {};
  std::string host = "localhost";  // the name that it wants to see
  std::string alpn = "h2";         // empty: it does not say what it speaks
  int max_version = 0;             // TLS1_2_VERSION; 0: the newest
};

// Blocks, for one thread. The socket stays its owner's.
class TlsClient {
 public:
  TlsClient(int fd, const TlsClientOptions& options);

  // Whether it has worked; a server that refuses a certificate may say so only
  // when it is read from.
  bool Handshake();
  const std::string& error() const { return error_; }
  int version() const { return SSL_version(ssl_.get()); }

  bool Send(absl::string_view bytes);
  // Says that it sends no more.
  void End() { SSL_shutdown(ssl_.get()); }
  // Some of what comes; empty: that was all.
  std::string Receive(size_t most = 64 << 10);
  // Whether the server said that it sends no more, once Receive is empty.
  bool has_ended_cleanly() const {
    return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }
  // The certificate that the server has shown, as a number of its own.
  std::string ServerSerial() const;

 private:
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  std::string error_;
};

// The number of the first certificate of `chain`, which is PEM, as ServerSerial
// has it.
std::string SerialOf(const std::string& chain);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_TLS_CLIENT_H_
