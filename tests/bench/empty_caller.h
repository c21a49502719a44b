#ifndef ATTND_TESTS_BENCH_EMPTY_CALLER_H_
#define ATTND_TESTS_BENCH_EMPTY_CALLER_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace attnd::bench {

// Its request is empty and its answer has two bytes.
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// Blocking calls of `method` with an empty message over a connection of its
// own, by gRPC alone. Ends the process on an error.
class EmptyCaller {
 public:
  // `busy_poll`: how long it looks for the answer before its thread sleeps.
  EmptyCaller(const std::string& target, const char* method,
              absl::Duration busy_poll = absl::ZeroDuration());

  void Call();

 private:
  const char* const method_;
  const absl::Duration busy_poll_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::CompletionQueue queue_;
  const grpc::Slice empty_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_EMPTY_CALLER_H_
