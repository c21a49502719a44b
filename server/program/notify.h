#ifndef ATTND_SERVER_PROGRAM_NOTIFY_H_
#define ATTND_SERVER_PROGRAM_NOTIFY_H_

// Tells the service manager that started the process, systemd say, how it is
// doing: sd_notify's protocol, which is one datagram of VARIABLE=VALUE lines to
// the socket that NOTIFY_SOCKET names. It takes no library.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnd::server {

// Where the service manager listens: a path, or "@" and the name of an abstract
// socket. Empty: nobody asks.
std::string NotifySocket();

// Sends `lines` to `socket`, or nothing if that is empty. Returns within a
// second or so, also where the service manager does not read. INVALID_ARGUMENT:
// `socket` is no address; UNAVAILABLE: nobody has got it. Both name the socket.
absl::Status Notify(const std::string& socket, absl::string_view lines);

// The server serves.
inline constexpr absl::string_view kReady = "READY=1";

// The server drains, for up to `drain_time`: the manager waits that much longer
// than it was configured to before it kills, if that is what it takes.
std::string Stopping(absl::Duration drain_time);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_NOTIFY_H_
