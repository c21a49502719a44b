#ifndef ATTND_SERVER_TLS_CREDENTIALS_H_
#define ATTND_SERVER_TLS_CREDENTIALS_H_

// Who the server is, and by whom its clients must be known.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls/openssl.h"

namespace attnd::server::tls {

enum class MinVersion { kTls12, kTls13 };

struct CredentialFiles {
  std::string certificate;  // PEM: the server's, then those that lead to a root
  std::string key;          // PEM, not encrypted
  // PEM: who signs clients' certificates. Empty: clients need none.
  std::string client_ca = {};
  MinVersion min_version = MinVersion::kTls12;

  bool enabled() const { return !certificate.empty(); }
};

// What the files hold.
struct CredentialText {
  std::string certificate;
  std::string key;
  std::string client_ca;

  // INVALID_ARGUMENT, naming the flag: a file cannot be read, is no regular
  // one, or is larger than a megabyte.
  static absl::StatusOr<CredentialText> Read(const CredentialFiles& files);
  bool operator==(const CredentialText&) const = default;
};

// Checked, and ready for handshakes. Immutable, and thread-safe.
class Credentials {
 public:
  // INVALID_ARGUMENT, naming the flag: no PEM, a key that is another
  // certificate's or encrypted, a certificate that is not valid at this time.
  static absl::StatusOr<std::shared_ptr<const Credentials>> Create(
      const CredentialText& text, const CredentialFiles& files);

  // The server's end of a connection, which keeps what it needs of this. Null:
  // there is no memory.
  SslPtr NewConnection() const;
  bool asks_clients() const { return asks_clients_; }
  // When the first of the certificates that it sends ends.
  absl::Time certificate_end() const { return certificate_end_; }
  // Whether a client that was let in before would be let in now. `chain` is
  // what came with its certificate; may be null.
  bool Admits(X509* certificate, STACK_OF(X509) * chain) const;

 private:
  Credentials() = default;
  absl::Status Use(const CredentialText& text, const CredentialFiles& files);
  absl::Status UseCertificate(const std::string& pem);
  absl::Status UseKey(const std::string& pem);
  absl::Status UseClientCa(const std::string& pem);

  SslContextPtr context_;
  bool asks_clients_ = false;
  absl::Time certificate_end_ = absl::InfiniteFuture();
};

}  // namespace attnd::server::tls

#endif  // ATTND_SERVER_TLS_CREDENTIALS_H_
