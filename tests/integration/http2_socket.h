#ifndef ATTND_TESTS_INTEGRATION_HTTP2_SOCKET_H_
#define ATTND_TESTS_INTEGRATION_HTTP2_SOCKET_H_

// A client's end of a connection, down to its bytes. The caller closes sockets.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace attnd::testing {

struct ReceivedFrame {
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
  std::string payload;
};

// A socket connected to "host:port" on loopback from 127.0.0.`from`, that waits
// for kHangLimit. -1: nobody listens.
int TryToConnect(const std::string& address, int from);
// The same from 127.0.0.1, where somebody must listen.
int ConnectedSocket(const std::string& address);

// Sends all, unless the peer no longer listens: its answer, or the absence of
// one, tells, and the system says false sooner or later.
bool SendBytes(int fd, absl::string_view bytes);

// Nothing when the connection ended, or with errno EAGAIN when kHangLimit
// passed. Settings are acknowledged.
std::optional<ReceivedFrame> ReceiveFrame(int fd);

// The client's preface and its `settings`, payload of a SETTINGS frame; then
// waits for the server's, which are acknowledged, so that the server holds its
// peer to them from here on.
void StartHttp2(int fd, const std::string& settings = "");

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_HTTP2_SOCKET_H_
