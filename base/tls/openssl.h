#ifndef ATTND_BASE_TLS_OPENSSL_H_
#define ATTND_BASE_TLS_OPENSSL_H_

// Owners of OpenSSL's objects, reading them, and what it has to say of a
// failure.

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

namespace attnd {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using BioPtr = std::unique_ptr<BIO, Free<BIO_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using SslPtr = std::unique_ptr<SSL, Free<SSL_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using X509Ptr = std::unique_ptr<X509, Free<X509_free>>;

inline void FreeChain(STACK_OF(X509) * chain) {
  sk_X509_pop_free(chain, X509_free);
}
using ChainPtr = std::unique_ptr<STACK_OF(X509), Free<FreeChain>>;

// Of the last error on this thread, without anything that a peer sent: "unknown
// ca", "no shared cipher". Empties the list of errors. Empty: there was none.
std::string TakeTlsError();

// All certificates of a text in PEM. What ended it is the last error: "no start
// line", as texts end, or what is wrong with the next one.
std::vector<X509Ptr> ReadCertificates(const std::string& pem);

// The first private key of a text in PEM. Null, and an error: there is none, or
// it is encrypted, as nobody is here to type a password.
KeyPtr ReadPrivateKey(const std::string& pem);

}  // namespace attnd

#endif  // ATTND_BASE_TLS_OPENSSL_H_
