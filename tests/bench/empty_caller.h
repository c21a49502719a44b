#ifndef ATTND_TESTS_BENCH_EMPTY_CALLER_H_
#define ATTND_TESTS_BENCH_EMPTY_CALLER_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace attnd::bench {

// Its request is empty and its answer has two bytes.
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// Blocking calls of `method` with an empty message over a connection of its
// own, by gRPC alone. Ends the process on an error.
class EmptyCaller {
 public:
  EmptyCaller(const std::string& target, const char* method);

  void Call();

 private:
  const char* const method_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::CompletionQueue queue_;
  const grpc::Slice empty_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_EMPTY_CALLER_H_
