#ifndef ATTND_SERVER_IDENTITY_OPTIONS_H_
#define ATTND_SERVER_IDENTITY_OPTIONS_H_

// What a server is told of who its clients are, and how much each may ask for.

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace attnd::server {

// What one client may have, whoever it is; 0: no limit of its own. Limits that
// all clients share hold besides.
struct ClientLimits {
  // Calls a second, with as many at once as one second allows, but always one.
  // Each stream of an Exchange is a call.
  double calls_per_second = 0;
  // On the byte account: inputs, scratch and results of requests from when they
  // are admitted until their answers have left.
  int64_t queue_bytes = 0;
  // Floating-point operations of requests that wait.
  double queue_flops = 0;
};

struct IdentityOptions {
  // Who has which token, and limits of its own: see token_file.h. Empty: no
  // token is known, and what a call says of one is ignored.
  std::string token_file;
  // Refuses calls that come with neither a certificate nor a token.
  bool required = false;
  ClientLimits limits;

  // The largest limits there may be, in the token file as well.
  static constexpr double kMostCallsPerSecond = 1e9;
  static constexpr int64_t kMostBytes = int64_t{1} << 50;
  static constexpr double kMostFlops = 1e30;

  // INVALID_ARGUMENT naming the option as its flag is spelled.
  absl::Status Validate() const;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_OPTIONS_H_
