#ifndef ATTND_CLIENT_LOOPBACK_H_
#define ATTND_CLIENT_LOOPBACK_H_

#include <string>

namespace attnd::client {

// Whether `target`, as gRPC writes one to TCP, leads nowhere but to this host:
// each of its addresses is in 127.0.0.0/8 or is ::1, or its name is
// "localhost". Any other name could lead anywhere. What is not understood does
// not count as loopback.
bool IsLoopbackTarget(const std::string& target);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_LOOPBACK_H_
