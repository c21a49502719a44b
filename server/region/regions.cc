#include "server/region/regions.h"

#include <grp.h>
#include <sys/socket.h>

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/status.h"
#include "server/scheduling/option_range.h"

namespace attnd::server {
namespace {

// Connections of a user beside those that have a region.
constexpr int kAskingPerUser = 8;

// The group of this name or number; none if it is empty.
absl::StatusOr<std::optional<gid_t>> FindGroup(const std::string& name) {
  if (name.empty()) return std::nullopt;
  group entry = {};
  group* found = nullptr;
  std::vector<char> room(64 << 10);
  if (getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found) == 0 &&
      found != nullptr) {
    return entry.gr_gid;
  }
  gid_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  return BadOption("--region_group",
                   absl::StrCat("\"", wire::Echo(name), "\" is no group"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Regions>> Regions::Start(Parts parts) {
  const RegionOptions& options = parts.options;
  const auto group = FindGroup(options.group);
  if (!group.ok()) return group.status();
  std::unique_ptr<Regions> regions(new Regions());
  // Before memory is taken, which whoever is refused here need not wait for.
  auto file = UnixSocketFile::Claim(options.socket, "--region_socket");
  if (!file.ok()) return file.status();
  regions->socket_ = *std::move(file);
  auto lessor =
      Lessor::Start(options, std::move(parts.devices), std::move(parts.log));
  if (!lessor.ok()) return lessor.status();
  regions->lessor_ = *std::move(lessor);
  auto listener =
      regions->socket_->Listen(options.socket_mode, SOCK_SEQPACKET, *group);
  if (!listener.ok()) return listener.status();
  auto server = LeaseServer::Start(
      {.listener = *std::move(listener),
       .lessor = regions->lessor_.get(),
       .users = options.users,
       .max_connections = options.max_connections,
       .max_connections_per_user = options.max_leases_per_user +
                                   options.max_imports_per_user +
                                   kAskingPerUser,
       .server_instance_id = std::move(parts.server_instance_id)},
      parts.header_time);
  if (!server.ok()) return server.status();
  regions->server_ = *std::move(server);
  return regions;
}

RegionStats Regions::stats() const {
  RegionStats stats = lessor_->stats();
  stats.connections = server_->connections();
  return stats;
}

}  // namespace attnd::server
