#ifndef ATTND_CLIENT_ATTNCTL_PRINT_H_
#define ATTND_CLIENT_ATTNCTL_PRINT_H_

#include <string>

#include "absl/status/status.h"
#include "attnd/client.h"
#include "client/attnctl/commands.h"

namespace attnd::client {

// Each ends with a newline; JSON is one object.
std::string ResultText(const Request& request, const Report& report,
                       double tolerance);
std::string ResultJson(const Request& request, const Report& report,
                       double tolerance);
std::string InfoText(const ServerInfo& info);
std::string InfoJson(const ServerInfo& info);

// "attnctl: INVALID_ARGUMENT: k.shape: ...", and each field violation. What a
// call returned may be a server's text: it is printed as printable ASCII.
std::string ErrorText(const absl::Status& status, bool from_call);
std::string ErrorJson(const absl::Status& status);

// Whether an output that was compared is within `tolerance`.
bool Agrees(const OutputResult& output, double tolerance);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_PRINT_H_
