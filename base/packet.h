#ifndef ATTND_BASE_PACKET_H_
#define ATTND_BASE_PACKET_H_

// Packets over unix sockets of type SOCK_SEQPACKET, with a file descriptor
// where one goes along.

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/descriptor.h"

namespace attnd {

struct Packet {
  std::string bytes;
  Descriptor descriptor;  // closed when a program is executed
};

// Sends `bytes`, not empty, and with them `descriptor` unless it is negative.
// Of a socket that does not block: UNAVAILABLE, too, when there is no room.
// UNAVAILABLE: the peer has gone, or that; INTERNAL: what else the system says.
absl::Status SendPacket(int socket, absl::string_view bytes,
                        int descriptor = -1);

// The next packet, of `most_bytes` at most. No descriptor is left open but the
// one that is returned.
//   UNAVAILABLE         the peer has gone, or has sent an empty one
//   FAILED_PRECONDITION there is none (of a socket that does not block)
//   INVALID_ARGUMENT    it is longer, or has several descriptors
//   RESOURCE_EXHAUSTED  the process may have no more descriptors
//   INTERNAL            what else the system says
absl::StatusOr<Packet> ReceivePacket(int socket, size_t most_bytes);

}  // namespace attnd

#endif  // ATTND_BASE_PACKET_H_
