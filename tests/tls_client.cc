#include "tests/tls_client.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdlib>

namespace attnd::testing {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

std::unique_ptr<BIO, int (*)(BIO*)> Reader(const std::string& pem) {
  return {BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free};
}

void Trust(SSL_CTX* context, const std::string& pem) {
  const auto reader = Reader(pem);
  while (X509* ca =
             PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca);
    X509_free(ca);
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
}

void Show(SSL_CTX* context, const std::string& chain, const std::string& key) {
  const auto reader = Reader(chain);
  X509* own = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr);
  Require(own != nullptr && SSL_CTX_use_certificate(context, own) == 1);
  X509_free(own);
  while (X509* more =
             PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    Require(SSL_CTX_add0_chain_cert(context, more) == 1);
  }
  EVP_PKEY* const private_key =
      PEM_read_bio_PrivateKey(Reader(key).get(), nullptr, nullptr, nullptr);
  Require(private_key != nullptr &&
          SSL_CTX_use_PrivateKey(context, private_key) == 1);
  EVP_PKEY_free(private_key);
}

std::string Serial(X509* certificate) {
  const std::unique_ptr<BIGNUM, void (*)(BIGNUM*)> number(
      ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr),
      BN_free);
  char* const text = BN_bn2hex(number.get());
  std::string serial(text);
  OPENSSL_free(text);
  return serial;
}

std::string LastError() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT: OpenSSL's type
  const char* const reason = ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "the connection ended" : reason;
}

}  // namespace

TlsClient::TlsClient(int fd, const TlsClientOptions& options)
    : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
      ssl_(nullptr, SSL_free) {
  if (options.max_version != 0) {
    SSL_CTX_set_max_proto_version(context_.get(), options.max_version);
  }
  if (options.max_version != 0 && options.max_version < TLS1_2_VERSION) {
    // Its signatures are of SHA-1, which other levels do not allow.
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
  }
  if (!options.ca.empty()) Trust(context_.get(), options.ca);
  if (!options.certificate.empty()) {
    Show(context_.get(), options.certificate, options.key);
  }
  ERR_clear_error();
  ssl_.reset(SSL_new(context_.get()));
  if (!options.alpn.empty()) {
    std::string list(1, static_cast<char>(options.alpn.size()));
    list += options.alpn;
    Require(SSL_set_alpn_protos(
                ssl_.get(), reinterpret_cast<const unsigned char*>(list.data()),
                static_cast<unsigned>(list.size())) == 0);
  }
  SSL_set_tlsext_host_name(ssl_.get(), options.host.c_str());
  SSL_set1_host(ssl_.get(), options.host.c_str());
  SSL_set_fd(ssl_.get(), fd);
}

bool TlsClient::Handshake() {
  ERR_clear_error();
  if (SSL_connect(ssl_.get()) == 1) return true;
  error_ = LastError();
  return false;
}

bool TlsClient::Send(absl::string_view bytes) {
  ERR_clear_error();
  size_t sent = 0;
  if (bytes.empty() ||
      SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent) == 1) {
    return true;
  }
  error_ = LastError();
  return false;
}

std::string TlsClient::Receive(size_t most) {
  ERR_clear_error();
  std::string bytes(most, '\0');
  size_t got = 0;
  if (SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &got) != 1) {
    error_ = LastError();
  }
  bytes.resize(got);
  return bytes;
}

std::string TlsClient::ServerSerial() const {
  X509* const shown = SSL_get0_peer_certificate(ssl_.get());
  return shown == nullptr ? "" : Serial(shown);
}

std::string SerialOf(const std::string& chain) {
  X509* const own =
      PEM_read_bio_X509(Reader(chain).get(), nullptr, nullptr, nullptr);
  Require(own != nullptr);
  std::string serial = Serial(own);
  X509_free(own);
  return serial;
}

}  // namespace attnd::testing
