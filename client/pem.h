#ifndef ATTND_CLIENT_PEM_H_
#define ATTND_CLIENT_PEM_H_

// Whether texts are what TLS takes, by OpenSSL, as gRPC will have it: gRPC
// itself (1.51) would make a channel that fails every call and not say why.
// Nothing here reads a file or asks a terminal for a password. Thread-safe.

#include <string>

#include "absl/status/status.h"

namespace attnd::client {

// OK when `pem` has certificates, and all of those that begin in it are whole;
// else INVALID_ARGUMENT that says what is wrong, without a name for it.
absl::Status CheckCertificates(const std::string& pem);

// The same of a private key, which must not be encrypted.
absl::Status CheckKey(const std::string& pem);

// Of what has passed those two: INVALID_ARGUMENT when OpenSSL would not use
// the first certificate of `chain`, such as for a key that is too short, or
// when `key` belongs to another.
absl::Status CheckUsable(const std::string& chain);
absl::Status CheckPair(const std::string& chain, const std::string& key);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_PEM_H_
