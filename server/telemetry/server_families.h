#ifndef ATTND_SERVER_TELEMETRY_SERVER_FAMILIES_H_
#define ATTND_SERVER_TELEMETRY_SERVER_FAMILIES_H_

#include "server/telemetry/families.h"
#include "server/telemetry/server_stats.h"

namespace attnd::server {

// The metrics of all that a server's parts count. docs/metrics.md describes
// each. A family whose subject there is not (a GPU, TLS) has no metric.
void AddServerFamilies(const ServerFacts& facts, const ServerStats& stats,
                       Families& to);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_SERVER_FAMILIES_H_
