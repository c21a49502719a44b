#include "base/tls/tls_context.h"

#include <openssl/provider.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/tls/wide_gcm.h"

namespace attnd {
namespace {

using LibraryPtr = std::unique_ptr<OSSL_LIB_CTX, Free<OSSL_LIB_CTX_free>>;

// OpenSSL with wide_gcm.h beside its own ciphers, apart from what the rest of
// the process has. Null: there is none, and that is to be used.
OSSL_LIB_CTX* LibraryWithWideGcm() {
  static OSSL_LIB_CTX* const library = []() -> OSSL_LIB_CTX* {
    if (!HasWideGcm() || EVP_default_properties_is_fips_enabled(nullptr) == 1) {
      return nullptr;
    }
    LibraryPtr made(OSSL_LIB_CTX_new());
    if (made == nullptr ||
        OSSL_PROVIDER_add_builtin(made.get(), kWideGcmProvider, InitWideGcm) !=
            1 ||
        OSSL_PROVIDER_load(made.get(), "default") == nullptr ||
        OSSL_PROVIDER_load(made.get(), kWideGcmProvider) == nullptr) {
      TakeTlsError();
      return nullptr;
    }
    return made.release();
  }();
  return library;
}

SslContextPtr New(const SSL_METHOD* method) {
  OSSL_LIB_CTX* const library = LibraryWithWideGcm();
  if (library == nullptr) return SslContextPtr(SSL_CTX_new(method));
  const std::string preferred = absl::StrCat("?provider=", kWideGcmProvider);
  return SslContextPtr(SSL_CTX_new_ex(library, preferred.c_str(), method));
}

}  // namespace

SslContextPtr NewTlsContext(const SSL_METHOD* method) {
  SslContextPtr made = New(method);
  if (made == nullptr) return nullptr;
  SSL_CTX* const context = made.get();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                   SSL_OP_NO_COMPRESSION);
  // The quickest first. Of TLS 1.2 what HTTP/2 allows (RFC 9113, 9.2.2).
  SSL_CTX_set_ciphersuites(context,
                           "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                           "TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20");
  // What is read ahead is a record, which is decrypted where it lies in the
  // nearest cache: several at once cost more than the calls that they save.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  return made;
}

}  // namespace attnd
