#include "base/packet.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace attnd {
namespace {

// Room for this many descriptors, so that of several all can be closed. The
// system closes those for which there is no room, and says so.
constexpr size_t kMostDescriptors = 8;

absl::Status SystemError(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Takes the descriptors out of a message that was received.
std::vector<Descriptor> TakeDescriptors(msghdr& message) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

}  // namespace

absl::Status SendPacket(int socket, absl::string_view bytes, int descriptor) {
  iovec data = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  if (errno == EPIPE || errno == ECONNRESET) {
    return absl::UnavailableError("the peer has gone");
  }
  if (errno == EAGAIN) return absl::UnavailableError("no room for a packet");
  return SystemError("sending a packet");
}

absl::StatusOr<Packet> ReceivePacket(int socket, size_t most_bytes) {
  Packet packet;
  packet.bytes.resize(most_bytes);
  iovec data = {packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received = -1;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    if (errno == EAGAIN) return absl::FailedPreconditionError("no packet");
    if (errno == ECONNRESET) return absl::UnavailableError("the peer has gone");
    return SystemError("receiving a packet");
  }
  std::vector<Descriptor> descriptors = TakeDescriptors(message);
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a packet of more than ", most_bytes, " bytes"));
  }
  if (descriptors.size() > 1) {
    return absl::InvalidArgumentError("a packet with several descriptors");
  }
  // The system has closed what did not fit: into `control`, or among those that
  // the process may have.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return absl::ResourceExhaustedError("no descriptor is left");
  }
  if (received == 0) {
    // An empty packet looks like the end; nothing of ours sends one.
    return absl::UnavailableError("the peer has gone");
  }
  packet.bytes.resize(received);
  if (!descriptors.empty()) packet.descriptor = std::move(descriptors.front());
  return packet;
}

}  // namespace attnd
