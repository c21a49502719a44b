#include "server/program/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/net/lingering_close.h"
#include "server/telemetry/http_server.h"

namespace attnd::server {
namespace {

// gRPC's, those to listen and to be woken by, the acceptor's reserve, and what
// is open for a moment: a dozen are seen.
constexpr int64_t kBesideConnections = 32;

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return std::numeric_limits<int64_t>::max();
  }
  const rlimit raised = {limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  // RLIM_INFINITY is the largest of all.
  return static_cast<int64_t>(
      std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
}

int CountDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  // One of them is the iterator's.
  return error ? 0 : static_cast<int>(std::distance(begin(all), end(all))) - 1;
}

absl::StatusOr<int> ConnectionsWithin(int64_t limit, int64_t open,
                                      const ServerOptions& options) {
  int64_t beside = open + kBesideConnections + LingeringClose::kMost;
  if (options.metrics_port >= 0) beside += kMaxHttpConnections;
  if (!options.admin_address.empty()) {
    beside += kMaxHttpConnections + kMaxAdminConnections;
  }
  beside += options.regions.Descriptors();
  if (limit <= beside) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "of ", beside + 1, " descriptors that a server needs for a single ",
        "connection the process may have only ", limit, "; see ulimit -Hn"));
  }
  return static_cast<int>(
      std::min<int64_t>(options.max_connections, limit - beside));
}

}  // namespace attnd::server
