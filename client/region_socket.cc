#include "client/region_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/packet.h"
#include "client/bad_response.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

// A reply has a few fields, or a status with its details.
constexpr size_t kMostReplyBytes = 16 << 10;
constexpr size_t kRegionIdBytes = 16;

absl::Status TooLate() {
  return absl::DeadlineExceededError(
      "the server's region socket has not answered in time");
}

absl::Status ConnectError(const std::string& path, int error) {
  const std::string text =
      absl::StrCat("cannot connect to ", path, ": ", std::strerror(error));
  switch (error) {
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EPROTOTYPE:
      return wire::FieldError(
          "socket", absl::StrCat(path, " is not a server's region socket"));
    case EAGAIN:
      return TooLate();
    default:
      return absl::UnavailableError(text);
  }
}

// How long the system waits for room in the listener's queue: no poll can wait
// for that, but a connect that blocks does, and heeds this.
void SetConnectTimeout(int fd, absl::Duration left) {
  timeval most = {};  // 0: as long as it takes
  if (left < absl::Hours(24)) {
    most = absl::ToTimeval(std::max(left, absl::Milliseconds(1)));
  }
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

absl::StatusOr<Descriptor> Connect(const std::string& path,
                                   absl::Time deadline) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) ||
      path.find('\0') != std::string::npos) {
    return wire::FieldError(
        "socket", absl::StrCat("a path of ", path.size(),
                               " bytes, or with a 0, is none of a socket"));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no socket: ", std::strerror(errno)));
  }
  const socklen_t size = offsetof(sockaddr_un, sun_path) + path.size() + 1;
  int error = EINTR;
  while (error == EINTR) {
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) return TooLate();
    SetConnectTimeout(fd.get(), left);
    error = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                    size) == 0
                ? 0
                : errno;
  }
  if (error != 0) return ConnectError(path, error);
  return fd;
}

// Waits until there is something to receive, if only the end.
absl::Status WaitForReply(int fd, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) return TooLate();
    pollfd state = {.fd = fd, .events = POLLIN, .revents = 0};
    const int64_t ms = absl::ToInt64Milliseconds(
        std::min(absl::Ceil(left, absl::Milliseconds(1)), absl::Hours(1)));
    const int ready = poll(&state, 1, static_cast<int>(ms));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) {
      return absl::InternalError(
          absl::StrCat("polling the region socket: ", std::strerror(errno)));
    }
  }
}

absl::StatusOr<Packet> Receive(int fd, absl::Time deadline) {
  if (absl::Status status = WaitForReply(fd, deadline); !status.ok()) {
    return status;
  }
  absl::StatusOr<Packet> packet = ReceivePacket(fd, kMostReplyBytes);
  if (absl::IsUnavailable(packet.status())) {
    // Of a server that refuses before it has read the request the system says
    // first that it has gone, and then gives what it sent.
    packet = ReceivePacket(fd, kMostReplyBytes);
  }
  if (absl::IsUnavailable(packet.status())) {
    return absl::UnavailableError("the server has closed its region socket");
  }
  if (absl::IsInvalidArgument(packet.status())) {
    return BadResponse("packet", packet.status().message());
  }
  return packet;
}

// What the reply grants; `asked`: bytes, the least.
absl::StatusOr<GrantedRegion> Read(Packet packet, int64_t asked) {
  v1::RegionReply reply;
  if (!reply.ParseFromString(packet.bytes)) {
    return BadResponse(v1::RegionReply::descriptor()->name(), "garbled");
  }
  if (!reply.status().empty()) {
    absl::Status status;
    if (!wire::DecodeStatus(reply.status(), status).ok() || status.ok()) {
      return BadResponse("status", "says of no error");
    }
    return status;
  }
  if (reply.region().size() != kRegionIdBytes) {
    return BadResponse("region", absl::StrCat(reply.region().size(),
                                              " bytes where 16 are due"));
  }
  if (reply.bytes() < asked) {
    return BadResponse("bytes", absl::StrCat(reply.bytes(), " where ", asked,
                                             " were asked for"));
  }
  GrantedRegion granted;
  granted.id = reply.region();
  granted.bytes = reply.bytes();
  granted.server_instance_id = reply.server_instance_id();
  granted.memory = std::move(packet.descriptor);
  return granted;
}

}  // namespace

absl::StatusOr<GrantedRegion> RequestRegion(const std::string& socket,
                                            const v1::RegionRequest& request,
                                            int descriptor,
                                            absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  absl::StatusOr<Descriptor> fd = Connect(socket, deadline);
  if (!fd.ok()) return fd.status();
  const absl::Status sent =
      SendPacket(fd->get(), request.SerializeAsString(), descriptor);
  // A server that has gone may have said why.
  if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
  absl::StatusOr<Packet> packet = Receive(fd->get(), deadline);
  if (!packet.ok()) return packet.status();
  const int64_t asked =
      request.has_import() ? request.import().bytes() : request.lease().bytes();
  absl::StatusOr<GrantedRegion> granted = Read(*std::move(packet), asked);
  if (granted.ok()) granted->socket = *std::move(fd);
  return granted;
}

}  // namespace attnd::client
