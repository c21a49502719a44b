#ifndef ATTND_TLS_GUARD_H_
#define ATTND_TLS_GUARD_H_

// TLS that costs a client what OpenSSL costs, in programs that ask for it.
//
// gRPC (1.51) copies what goes by TLS four times before OpenSSL has it, in
// pieces of 8 KiB. With the target attnd::client_tls_guard a program's own
// recvmsg, sendmsg, setsockopt and close take the place of the system's, and
// encrypt what gRPC believes to send in clear. They do what the system's do for
// all other descriptors; even so, such functions are for a program to choose,
// and no library should link them into somebody else's.

namespace attnd::client {

// Whether clients' channels get their TLS that way, from the next channel on;
// without this being called they do not. A channel still gets gRPC's own where
// the environment names a proxy (https_proxy and its like) or roots for gRPC
// alone, or where its target is neither host:port nor dns:host:port. What
// options and errors mean is the same.
//
// False: it was asked for and cannot be, as another gRPC than 1.51 is there, or
// the program's functions are not the ones that gRPC calls; then all is as if
// it had not been asked for. Thread-safe.
bool UseTlsGuard(bool use = true);

}  // namespace attnd::client

#endif  // ATTND_TLS_GUARD_H_
