#ifndef ATTND_SERVER_REGION_LEASE_DOOR_H_
#define ATTND_SERVER_REGION_LEASE_DOOR_H_

// Who may connect to the region socket.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/descriptor.h"
#include "server/net/accept_errors.h"
#include "server/net/connection_limits.h"
#include "server/region/lessor.h"

namespace attnd::server {

// Not thread-safe; never blocks. Whoever may not connect is told why, also when
// the process has no descriptor left.
class LeaseDoor {
 public:
  struct Parts {
    Descriptor listener;          // SOCK_SEQPACKET, which does not block
    Lessor* lessor = nullptr;     // outlives it; counts refusals
    std::vector<uint32_t> users;  // who may; empty: everybody
    int max_connections = 0;
    int max_connections_per_user = 0;
    std::string server_instance_id;
  };

  explicit LeaseDoor(Parts parts);

  int listener() const { return parts_.listener.get(); }
  // Accepts who waits, at most some, and hands over those who may connect,
  // whose sockets do not block. False: it cannot accept now.
  bool AcceptSome(absl::FunctionRef<void(Descriptor socket, uid_t user)> admit);
  // One who was handed over has gone.
  void Remove(uid_t user);
  // To be called before waiting.
  void FillReserve() { reserve_.Fill(); }

 private:
  enum class Outcome : uint8_t { kAccepted, kNobodyWaits, kCannot };

  Outcome AcceptOne(
      absl::FunctionRef<void(Descriptor socket, uid_t user)> admit);
  Outcome RefuseWithReserve();
  // OK, and it counts; or why it may not be.
  absl::Status Admit(int socket, uid_t& user);
  bool IsAllowed(uid_t user) const;

  const Parts parts_;
  ConnectionLimits limits_;
  DescriptorReserve reserve_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_LEASE_DOOR_H_
