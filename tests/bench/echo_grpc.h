#ifndef ATTND_TESTS_BENCH_ECHO_GRPC_H_
#define ATTND_TESTS_BENCH_ECHO_GRPC_H_

// What the echoes set up alike: gRPC over loopback, any size of message, in
// clear unless they are given other credentials.

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <memory>
#include <string>

#include "tests/bench/echo_peers.h"

namespace attnd::bench {

// Serves on a free port until the parent is done.
void ServeEcho(grpc::Service& service,
               const std::shared_ptr<grpc::ServerCredentials>& credentials =
                   grpc::InsecureServerCredentials());

// With a connection of its own.
std::shared_ptr<grpc::Channel> ConnectEcho(
    const std::string& target,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials =
        grpc::InsecureChannelCredentials());

// Ends the process unless a call of `echo` ended OK with all bytes.
void CheckEcho(const char* echo, const grpc::Status& status, size_t received,
               const Exchange& exchange);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_ECHO_GRPC_H_
