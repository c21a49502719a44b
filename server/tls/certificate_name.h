#ifndef ATTND_SERVER_TLS_CERTIFICATE_NAME_H_
#define ATTND_SERVER_TLS_CERTIFICATE_NAME_H_

#include <string>

#include "base/tls/openssl.h"

namespace attnd::server::tls {

// Whom a certificate names: its first URI (as SPIFFE has it), else its first
// DNS name, else its common name, of up to 256 printable ASCII characters other
// than space; else "sha256:" and its fingerprint in hexadecimal, which no other
// certificate can have, as a name that begins so counts as none.
std::string NameOf(X509* certificate);

}  // namespace attnd::server::tls

#endif  // ATTND_SERVER_TLS_CERTIFICATE_NAME_H_
