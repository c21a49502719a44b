#ifndef ATTND_SERVER_ADMIN_STATUS_PAGE_H_
#define ATTND_SERVER_ADMIN_STATUS_PAGE_H_

// A server at a glance, for operators and their scripts. No gRPC in here.

#include <string>

#include "server/admin/server_status.h"

namespace attnd::server {

// An object of JSON, indented, with a line break at its end. Bytes, counts and
// seconds are numbers; names stay what they are once they are there.
std::string StatusJson(const ServerStatus& status);

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_STATUS_PAGE_H_
