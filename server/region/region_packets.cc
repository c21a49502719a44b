#include "server/region/region_packets.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "base/packet.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

// The first field of `message` that the schema does not know; OK: none.
absl::Status KnowsAllFields(const google::protobuf::Message& message,
                            absl::string_view path) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  if (unknown.empty()) return absl::OkStatus();
  return wire::UnknownFieldError(path, message.GetDescriptor()->full_name(),
                                 unknown.field(0).number());
}

}  // namespace

Peeked PeekPacket(int socket, size_t most_bytes, std::string& bytes) {
  bytes.resize(most_bytes);
  ssize_t received = -1;
  do {
    // Without room for descriptors none is made of those that come with it.
    received = recv(socket, bytes.data(), bytes.size(),
                    MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    return errno == EAGAIN ? Peeked::kNothing : Peeked::kFailed;
  }
  if (received == 0) return Peeked::kEmpty;
  if (received > static_cast<ssize_t>(most_bytes)) return Peeked::kTooLong;
  bytes.resize(received);
  return Peeked::kPacket;
}

bool DropPacket(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  ssize_t received = -1;
  do {
    received = recvmsg(socket, &message, MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  return received >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
}

void StopReceiving(int socket) {
  shutdown(socket, SHUT_RD);
  // More than the system lets wait on a socket. One that is closed before it
  // has been emptied resets the peer's.
  constexpr int kMost = 1024;
  // Empty ones look like the end.
  constexpr int kMostEmpty = 8;
  int empty = 0;
  char byte = 0;
  for (int i = 0; i < kMost && empty < kMostEmpty; ++i) {
    const ssize_t received = recv(socket, &byte, 1, MSG_DONTWAIT);
    if (received < 0 && errno != EINTR) return;
    if (received == 0) ++empty;
  }
}

void SendRefusal(int socket, const absl::Status& status,
                 const std::string& server_instance_id) {
  attn::v1::RegionReply reply;
  reply.set_status(wire::EncodeStatus(status));
  reply.set_server_instance_id(server_instance_id);
  // Who does not read it goes without.
  SendPacket(socket, reply.SerializeAsString()).IgnoreError();
  StopReceiving(socket);
}

absl::StatusOr<attn::v1::RegionRequest> ParseRegionRequest(
    absl::string_view bytes) {
  attn::v1::RegionRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the packet is no RegionRequest");
  }
  absl::Status status = KnowsAllFields(request, "");
  if (request.has_lease()) {
    status.Update(KnowsAllFields(request.lease(), "lease"));
  }
  if (request.has_import()) {
    status.Update(KnowsAllFields(request.import(), "import"));
  }
  if (!status.ok()) return status;
  if (request.kind_case() == attn::v1::RegionRequest::KIND_NOT_SET) {
    return absl::InvalidArgumentError(
        "the packet asks for nothing: neither lease nor import is set");
  }
  return request;
}

}  // namespace attnd::server
