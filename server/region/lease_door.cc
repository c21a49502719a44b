#include "server/region/lease_door.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/net/origin.h"
#include "server/region/region_packets.h"

namespace attnd::server {
namespace {

// So that leases, and the end, get their turn.
constexpr int kAcceptsPerRound = 64;

Descriptor Accept(int listener) {
  return Descriptor(
      accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace

LeaseDoor::LeaseDoor(Parts parts)
    : parts_(std::move(parts)),
      limits_(parts_.max_connections, parts_.max_connections_per_user) {}

bool LeaseDoor::AcceptSome(
    absl::FunctionRef<void(Descriptor socket, uid_t user)> admit) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    const Outcome outcome = AcceptOne(admit);
    if (outcome != Outcome::kAccepted) return outcome == Outcome::kNobodyWaits;
  }
  return true;
}

LeaseDoor::Outcome LeaseDoor::AcceptOne(
    absl::FunctionRef<void(Descriptor socket, uid_t user)> admit) {
  Descriptor socket = Accept(listener());
  if (socket.valid()) {
    uid_t user = 0;
    const absl::Status status = Admit(socket.get(), user);
    if (status.ok()) {
      admit(std::move(socket), user);
    } else {
      SendRefusal(socket.get(), status, parts_.server_instance_id);
    }
    return Outcome::kAccepted;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) return Outcome::kNobodyWaits;
  if (IsOfThePeer(errno)) return Outcome::kAccepted;
  if (errno == EMFILE || errno == ENFILE) return RefuseWithReserve();
  return Outcome::kCannot;
}

// Only with a descriptor does accepting tell whether anybody waits.
LeaseDoor::Outcome LeaseDoor::RefuseWithReserve() {
  Outcome outcome = Outcome::kCannot;
  while (outcome == Outcome::kCannot && reserve_.Free()) {
    const Descriptor socket = Accept(listener());
    if (socket.valid()) {
      SendRefusal(socket.get(),
                  parts_.lessor->Refuse(
                      RegionRefusal::kDescriptors,
                      absl::ResourceExhaustedError(
                          "the server has no descriptor left; see ulimit -n")),
                  parts_.server_instance_id);
      outcome = Outcome::kAccepted;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      outcome = Outcome::kNobodyWaits;
    }
  }
  reserve_.Fill();
  return outcome;
}

absl::Status LeaseDoor::Admit(int socket, uid_t& user) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      !IsAllowed(peer.uid)) {
    return parts_.lessor->Refuse(RegionRefusal::kUser,
                                 absl::PermissionDeniedError(absl::StrCat(
                                     ToString(UserOrigin(peer.uid)),
                                     " may have no regions: --region_uids")));
  }
  user = peer.uid;
  const auto refusal = limits_.Add(UserOrigin(user));
  if (!refusal.has_value()) return absl::OkStatus();
  if (*refusal == Refusal::kMaxConnectionsPerClient) {
    return parts_.lessor->Refuse(
        RegionRefusal::kLimitOfUser,
        absl::ResourceExhaustedError(
            "this user has as many connections as it may have regions"));
  }
  return parts_.lessor->Refuse(
      RegionRefusal::kConnections,
      absl::ResourceExhaustedError(
          "as many have regions as --max_region_connections allows"));
}

void LeaseDoor::Remove(uid_t user) { limits_.Remove(UserOrigin(user)); }

bool LeaseDoor::IsAllowed(uid_t user) const {
  const std::vector<uint32_t>& users = parts_.users;
  return users.empty() ||
         std::find(users.begin(), users.end(), user) != users.end();
}

}  // namespace attnd::server
