#ifndef ATTND_CLIENT_TLS_SOCKETS_H_
#define ATTND_CLIENT_TLS_SOCKETS_H_

// Where connections get TLS from in a program that does not leave it to gRPC.

#include <memory>
#include <string>

#include "client/credentials.h"

namespace attnd::client {

// Of one channel. Thread-safe.
class TlsSockets {
 public:
  virtual ~TlsSockets() = default;
  // For a socket that is yet to be connected: all that is sent over it from now
  // on goes by TLS. False: it must not be used.
  virtual bool Protect(int fd) = 0;
  // Why the last handshake failed, in OpenSSL's words or in gRPC's; empty: none
  // did, or one has succeeded since.
  virtual std::string failure() const = 0;
};

// Of a channel to `target`, which its server's certificate must name unless
// `server_name` is given. Null: this one is for gRPC's own TLS.
using TlsSocketsMaker = std::shared_ptr<TlsSockets> (*)(
    const std::string& target, const Credentials::Tls& tls,
    const std::string& server_name);

// Who is asked for them, from the next channel on; null: nobody. Thread-safe,
// as is what asks.
void SetTlsSocketsMaker(TlsSocketsMaker maker);
std::shared_ptr<TlsSockets> MakeTlsSockets(const std::string& target,
                                           const Credentials::Tls& tls,
                                           const std::string& server_name);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TLS_SOCKETS_H_
