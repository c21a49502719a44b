#include "client/tls_guard/client_context.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <vector>

#include "base/tls/tls_context.h"

namespace attnd::client {
namespace {

// Credentials have checked whatever is read here.
bool Trust(const std::string& authorities, SSL_CTX* context) {
  if (authorities.empty()) {
    return SSL_CTX_set_default_verify_paths(context) == 1;
  }
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const X509Ptr& one : ReadCertificates(authorities)) {
    if (X509_STORE_add_cert(store, one.get()) != 1) return false;
  }
  return true;
}

bool Show(const Credentials::Tls& tls, SSL_CTX* context) {
  if (tls.certificate.empty()) return true;
  const std::vector<X509Ptr> chain = ReadCertificates(tls.certificate);
  if (chain.empty() ||
      SSL_CTX_use_certificate(context, chain.front().get()) != 1) {
    return false;
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return false;
  }
  const KeyPtr key = ReadPrivateKey(tls.key);
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

bool IsAddress(const std::string& name) {
  in6_addr address;
  return inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

}  // namespace

SslContextPtr MakeClientContext(const Credentials::Tls& tls) {
  SslContextPtr context = NewTlsContext(TLS_client_method());
  if (context == nullptr) return nullptr;
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  // As gRPC's: an authority that is not its own may be trusted by itself.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context.get()),
                       X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  // Which says 0 when it succeeds, unlike all the others.
  const bool usable =
      SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2)) == 0 &&
      Trust(tls.authorities, context.get()) && Show(tls, context.get());
  TakeTlsError();
  if (!usable) return nullptr;
  return context;
}

SslPtr NewConnection(SSL_CTX* context, const std::string& name) {
  SslPtr ssl(SSL_new(context));
  if (ssl == nullptr) return nullptr;
  SSL_set_connect_state(ssl.get());
  X509_VERIFY_PARAM* const expected = SSL_get0_param(ssl.get());
  if (IsAddress(name)) {
    if (X509_VERIFY_PARAM_set1_ip_asc(expected, name.c_str()) != 1) {
      return nullptr;
    }
    return ssl;
  }
  X509_VERIFY_PARAM_set_hostflags(expected,
                                  X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (X509_VERIFY_PARAM_set1_host(expected, name.data(), name.size()) != 1 ||
      SSL_set_tlsext_host_name(ssl.get(), name.c_str()) != 1) {
    return nullptr;
  }
  return ssl;
}

}  // namespace attnd::client
