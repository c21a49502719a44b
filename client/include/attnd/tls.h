#ifndef ATTND_TLS_H_
#define ATTND_TLS_H_

#include <string>

namespace attnd::client {

// TLS, 1.2 or newer, between a client and a server. Over TCP: the users of a
// unix socket are known by the system, and Create refuses TLS there.
//
// A file holds PEM and has at most 1 MiB. Create reads it, and whoever renews
// one replaces it, best by a rename: within two seconds what has come is used
// for new connections, one of which is made for the next call, while calls that
// are under way end over the old one. Where new files are no good, or a
// certificate has come and its key has not yet, those that were good stay in
// use. Text in place of a file stays as it is.
struct TlsOptions {
  // Without it nothing else may be set.
  bool enabled = false;

  // The authorities (CA) one of which must have signed the server's
  // certificate, in a file or as text. With neither, those that the system
  // trusts, as far as system_roots allows.
  std::string ca_file = {};
  std::string ca_pem = {};
  // False: an authority must be given, and none is trusted but that.
  bool system_roots = true;

  // What the client shows a server that asks for a certificate: its own,
  // followed by those of authorities between it and one that the server knows,
  // and its private key, which is not encrypted. Both or neither.
  std::string certificate_file = {}, key_file = {};
  std::string certificate_pem = {}, key_pem = {};

  // The name or address that the server's certificate must have, if not that in
  // the target: for a tunnel, or an address that the certificate lacks.
  std::string server_name = {};
};

}  // namespace attnd::client

#endif  // ATTND_TLS_H_
