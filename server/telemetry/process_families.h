#ifndef ATTND_SERVER_TELEMETRY_PROCESS_FAMILIES_H_
#define ATTND_SERVER_TELEMETRY_PROCESS_FAMILIES_H_

#include "server/telemetry/families.h"

namespace attnd::server {

// What Prometheus' own client libraries say of their process, by the same
// names, read from /proc: processor time, memory, descriptors, threads, start.
// Families that the system does not tell are left out.
void AddProcessFamilies(Families& to);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_PROCESS_FAMILIES_H_
