#ifndef ATTND_CLIENT_TLS_GUARD_CLIENT_CONTEXT_H_
#define ATTND_CLIENT_TLS_GUARD_CLIENT_CONTEXT_H_

#include <string>

#include "base/tls/openssl.h"
#include "client/credentials.h"

namespace attnd::client {

// What handshakes of a client need of `tls`: as gRPC's own TLS has it, TLS 1.2
// and 1.3, and suites that HTTP/2 allows. Null: OpenSSL does not take it.
SslContextPtr MakeClientContext(const Credentials::Tls& tls);

// The client's end of a connection whose server must prove to be `name`, an
// address or a DNS name. Null: there is no memory.
SslPtr NewConnection(SSL_CTX* context, const std::string& name);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TLS_GUARD_CLIENT_CONTEXT_H_
