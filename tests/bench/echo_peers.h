#ifndef ATTND_TESTS_BENCH_ECHO_PEERS_H_
#define ATTND_TESTS_BENCH_ECHO_PEERS_H_

// What attnd's transport is measured against: two ways to write the same
// exchange, three tensors in and one of them back, with gRPC alone.
//
//   raw    the least that gRPC allows: ByteBuffer slices over the caller's
//          memory out, one copy into staging, one into the output, slices over
//          the output back, one copy into the caller's memory. No message, no
//          validation, no queue.
//   proto  what generated code does by itself: callback service, fresh
//          messages per call, tensors as `bytes`.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace attnd::bench {

// Serve on a free loopback port until the parent is done.
void ServeRawEcho();
void ServeProtoEcho();
// The raw one by gRPC's own TLS, with a certificate and its key as PEM.
void ServeRawEchoByTls(const std::string& certificate, const std::string& key);

// One exchange: sends `in` (each of `bytes`), receives `bytes` into `out`.
// Ends the process on an error.
struct Exchange {
  const std::byte* in[3] = {};
  std::byte* out = nullptr;
  size_t bytes = 0;
};
using EchoCall = std::function<void(const Exchange&)>;

// Clients with a connection of their own.
EchoCall ConnectRawEcho(const std::string& target);
EchoCall ConnectProtoEcho(const std::string& target);
// `ca`: PEM, whom it trusts.
EchoCall ConnectRawEchoByTls(const std::string& target, const std::string& ca);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_ECHO_PEERS_H_
