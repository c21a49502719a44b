#ifndef ATTND_BASE_TLS_TLS_CONTEXT_H_
#define ATTND_BASE_TLS_TLS_CONTEXT_H_

#include "base/tls/openssl.h"

namespace attnd {

// A context for one end of TLS, with what both ends have alike: TLS 1.2 or
// later, the ciphers that HTTP/2 allows, the quickest first, and nothing that
// is resumed, compressed or negotiated again. Encrypts by wide_gcm.h where the
// processor can, unless OpenSSL's configuration asks for FIPS. Null: there is
// no memory.
SslContextPtr NewTlsContext(const SSL_METHOD* method);

}  // namespace attnd

#endif  // ATTND_BASE_TLS_TLS_CONTEXT_H_
