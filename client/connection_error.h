#ifndef ATTND_CLIENT_CONNECTION_ERROR_H_
#define ATTND_CLIENT_CONNECTION_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd::client {

// What a TCP connection that failed was to be.
struct ConnectionKind {
  bool tls = false;
  bool has_certificate = false;  // that the client shows
  // Why the last handshake failed, where gRPC knows of none.
  absl::string_view failure = {};
};

// `status` of a call, led by what to check where it says that no connection
// could be made and why. gRPC (1.51) tells what OpenSSL does of a handshake;
// what it cannot know, such as why a server hung up, is not guessed: then the
// text says what may be. Codes and details stay.
absl::Status ExplainConnectionError(absl::Status status, ConnectionKind kind);

// `status` with `note` after its own message.
absl::Status WithNote(const absl::Status& status, absl::string_view note);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CONNECTION_ERROR_H_
