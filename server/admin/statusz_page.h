#ifndef ATTND_SERVER_ADMIN_STATUSZ_PAGE_H_
#define ATTND_SERVER_ADMIN_STATUSZ_PAGE_H_

#include <string>

#include "server/admin/server_status.h"

namespace attnd::server {

// A page of HTML for a browser: the build, devices and their lanes, the queue,
// memory, connections, refusals, and calls that failed or took long of late.
// One file without scripts, which asks for nothing else. All text from outside
// is escaped. `time` is the time of day.
std::string StatuszHtml(const ServerStatus& status, absl::Time time);

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_STATUSZ_PAGE_H_
