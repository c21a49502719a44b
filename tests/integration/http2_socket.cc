#include "tests/integration/http2_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/hang_limit.h"
#include "tests/integration/http2_bytes.h"

namespace attnd::testing {
namespace {

// Exactly `bytes`, or nothing; errno is EAGAIN only if time was up.
std::optional<std::string> Receive(int fd, size_t bytes) {
  std::string all(bytes, '\0');
  for (size_t got = 0; got < bytes;) {
    errno = 0;
    const ssize_t n = recv(fd, all.data() + got, bytes - got, 0);
    if (n <= 0) return std::nullopt;
    got += n;
  }
  return all;
}

}  // namespace

int TryToConnect(const std::string& address, int from) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval timeout = absl::ToTimeval(kHangLimit);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  // Otherwise a second small write waits for an answer to the first.
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Ports of connections that are closed may be taken again.
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
  bool ok = bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port =
      htons(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  ok = ok && connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  if (ok) return fd;
  close(fd);
  return -1;
}

int ConnectedSocket(const std::string& address) {
  const int fd = TryToConnect(address, 1);
  if (fd < 0) std::abort();
  return fd;
}

bool SendBytes(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

std::optional<ReceivedFrame> ReceiveFrame(int fd) {
  const std::optional<std::string> head = Receive(fd, 9);
  if (!head.has_value()) return std::nullopt;
  const auto byte = [&](int i) { return static_cast<uint8_t>((*head)[i]); };
  const uint32_t stream =
      (byte(5) & 0x7fu) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
  std::optional<std::string> payload =
      Receive(fd, byte(0) << 16 | byte(1) << 8 | byte(2));
  if (!payload.has_value()) return std::nullopt;
  if (byte(3) == kSettings && (byte(4) & kAck) == 0) {
    SendBytes(fd, Frame(kSettings, kAck, 0));
  }
  return ReceivedFrame{byte(3), byte(4), stream, *std::move(payload)};
}

void StartHttp2(int fd, const std::string& settings) {
  SendBytes(fd, absl::StrCat(kPreface, Frame(kSettings, 0, 0, settings)));
  for (std::optional<ReceivedFrame> frame = ReceiveFrame(fd);
       frame.has_value() &&
       (frame->type != kSettings || (frame->flags & kAck) != 0);) {
    frame = ReceiveFrame(fd);
  }
}

}  // namespace attnd::testing
