#ifndef ATTND_CLIENT_TLS_GUARD_TARGET_HOST_H_
#define ATTND_CLIENT_TLS_GUARD_TARGET_HOST_H_

#include <string>

namespace attnd::client {

// Whose certificate a server at `target` has to show: the host of "host:80",
// "[::1]:80", "dns:host:80" and "dns:///host:80". Empty: it is of another form.
std::string TargetHost(const std::string& target);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TLS_GUARD_TARGET_HOST_H_
