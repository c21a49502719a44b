#include "server/tls/credentials.h"

#include <openssl/x509_vfy.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/small_file.h"
#include "base/tls/tls_context.h"

namespace attnd::server::tls {
namespace {

constexpr absl::string_view kCertificateFlag = "--tls_cert";
constexpr absl::string_view kKeyFlag = "--tls_key";
constexpr absl::string_view kClientCaFlag = "--tls_client_ca";

absl::Status Bad(absl::string_view flag, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
}

absl::StatusOr<std::string> ReadFile(absl::string_view flag,
                                     const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (text.ok()) return text;
  return Bad(flag, absl::StrCat("cannot read ", text.status().message()));
}

// All certificates of a file. Those that are none end it with an error.
absl::StatusOr<std::vector<X509Ptr>> Certificates(absl::string_view flag,
                                                  const std::string& pem) {
  std::vector<X509Ptr> all = ReadCertificates(pem);
  const std::string error = TakeTlsError();
  // Which is how a file ends.
  if (error != "no start line") {
    return Bad(flag, absl::StrCat("a certificate is broken: ", error));
  }
  if (all.empty()) return Bad(flag, "no certificate (PEM) is in the file");
  return all;
}

// Who names no protocol is refused as who names another one (RFC 9113, 3.2):
// ChooseHttp2 is asked only where there are some to choose from.
int DemandProtocols(SSL* ssl, int* alert, void*) {
  const unsigned char* offered = nullptr;
  size_t bytes = 0;
  if (SSL_client_hello_get0_ext(
          ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &offered,
          &bytes) == 1) {
    return SSL_CLIENT_HELLO_SUCCESS;
  }
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

int ChooseHttp2(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
                const unsigned char* offered, unsigned int offered_bytes,
                void*) {
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  unsigned char* match = nullptr;
  if (SSL_select_next_proto(&match, chosen_bytes, kHttp2, sizeof(kHttp2),
                            offered, offered_bytes) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = match;
  return SSL_TLSEXT_ERR_OK;
}

absl::Time EndOf(const X509& certificate) {
  tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) {
    return absl::InfiniteFuture();
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<CredentialText> CredentialText::Read(
    const CredentialFiles& files) {
  CredentialText text;
  auto certificate = ReadFile(kCertificateFlag, files.certificate);
  if (!certificate.ok()) return certificate.status();
  text.certificate = *std::move(certificate);
  auto key = ReadFile(kKeyFlag, files.key);
  if (!key.ok()) return key.status();
  text.key = *std::move(key);
  if (files.client_ca.empty()) return text;
  auto client_ca = ReadFile(kClientCaFlag, files.client_ca);
  if (!client_ca.ok()) return client_ca.status();
  text.client_ca = *std::move(client_ca);
  return text;
}

absl::StatusOr<std::shared_ptr<const Credentials>> Credentials::Create(
    const CredentialText& text, const CredentialFiles& files) {
  std::shared_ptr<Credentials> credentials(new Credentials);
  absl::Status status = credentials->Use(text, files);
  TakeTlsError();
  if (!status.ok()) return status;
  return credentials;
}

absl::Status Credentials::Use(const CredentialText& text,
                              const CredentialFiles& files) {
  // Nothing is resumed: who was let in once must be known now as well.
  context_ = NewTlsContext(TLS_server_method());
  SSL_CTX* const context = context_.get();
  if (context == nullptr) return absl::ResourceExhaustedError("no TLS");
  if (files.min_version == MinVersion::kTls13) {
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  }
  SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_client_hello_cb(context, DemandProtocols, nullptr);
  SSL_CTX_set_alpn_select_cb(context, ChooseHttp2, nullptr);
  absl::Status status = UseCertificate(text.certificate);
  if (status.ok()) status = UseKey(text.key);
  if (status.ok() && !files.client_ca.empty()) {
    status = UseClientCa(text.client_ca);
  }
  return status;
}

absl::Status Credentials::UseCertificate(const std::string& pem) {
  auto all = Certificates(kCertificateFlag, pem);
  if (!all.ok()) return all.status();
  for (const X509Ptr& one : *all) {
    certificate_end_ = std::min(certificate_end_, EndOf(*one));
  }
  X509* const own = all->front().get();
  if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
    return Bad(kCertificateFlag, "the certificate is not valid yet");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
    return Bad(kCertificateFlag, "the certificate has expired");
  }
  if (SSL_CTX_use_certificate(context_.get(), own) != 1) {
    return Bad(kCertificateFlag, TakeTlsError());
  }
  for (size_t i = 1; i < all->size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context_.get(), (*all)[i].get()) != 1) {
      return Bad(kCertificateFlag, TakeTlsError());
    }
  }
  return absl::OkStatus();
}

absl::Status Credentials::UseKey(const std::string& pem) {
  const KeyPtr key = ReadPrivateKey(pem);
  if (key == nullptr) {
    return Bad(kKeyFlag, absl::StrCat("no private key (PEM, not encrypted) is ",
                                      "in the file: ", TakeTlsError()));
  }
  if (X509_check_private_key(SSL_CTX_get0_certificate(context_.get()),
                             key.get()) != 1) {
    return Bad(kKeyFlag, "the key is not that of --tls_cert");
  }
  if (SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
    return Bad(kKeyFlag, TakeTlsError());
  }
  return absl::OkStatus();
}

absl::Status Credentials::UseClientCa(const std::string& pem) {
  auto all = Certificates(kClientCaFlag, pem);
  if (!all.ok()) return all.status();
  for (const X509Ptr& one : *all) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()),
                            one.get()) != 1 ||
        SSL_CTX_add_client_CA(context_.get(), one.get()) != 1) {
      return Bad(kClientCaFlag, TakeTlsError());
    }
  }
  SSL_CTX_set_verify(context_.get(),
                     SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     nullptr);
  asks_clients_ = true;
  return absl::OkStatus();
}

SslPtr Credentials::NewConnection() const {
  SslPtr ssl(SSL_new(context_.get()));
  if (ssl != nullptr) SSL_set_accept_state(ssl.get());
  return ssl;
}

bool Credentials::Admits(X509* certificate, STACK_OF(X509) * chain) const {
  if (!asks_clients_) return true;
  if (certificate == nullptr) return false;
  const std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>> check(
      X509_STORE_CTX_new());
  const bool admits =
      check != nullptr &&
      X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context_.get()),
                          certificate, chain) == 1 &&
      X509_STORE_CTX_set_default(check.get(), "ssl_client") == 1 &&
      X509_verify_cert(check.get()) == 1;
  TakeTlsError();
  return admits;
}

}  // namespace attnd::server::tls
