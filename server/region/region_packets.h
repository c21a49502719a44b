#ifndef ATTND_SERVER_REGION_REGION_PACKETS_H_
#define ATTND_SERVER_REGION_REGION_PACKETS_H_

// Packets of the region socket, looked at without taking in what descriptors
// come with them. Sockets here do not block.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attn/v1/region.pb.h"

namespace attnd::server {

enum class Peeked : uint8_t {
  kNothing,  // there is no packet
  kEmpty,    // an empty one, or none will come any more
  kTooLong,
  kPacket,
  kFailed,  // the connection has
};

// The next packet, of `most_bytes` at most, which stays where it is.
Peeked PeekPacket(int socket, size_t most_bytes, std::string& bytes);

// Takes the next packet and lets go of descriptors that come with it. True:
// there was one, of a client who sent descriptors.
bool DropPacket(int socket);

// Lets the peer send nothing any more, and drops what it has sent: it may then
// read what was answered when the socket is closed.
void StopReceiving(int socket);

// Answers with `status`, which is not OK, if the peer reads it, and stops
// receiving.
void SendRefusal(int socket, const absl::Status& status,
                 const std::string& server_instance_id);

// INVALID_ARGUMENT: it is none; UNIMPLEMENTED: it has a field that this server
// does not know.
absl::StatusOr<attn::v1::RegionRequest> ParseRegionRequest(
    absl::string_view bytes);

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_REGION_PACKETS_H_
