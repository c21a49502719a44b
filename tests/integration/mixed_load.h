#ifndef ATTND_TESTS_INTEGRATION_MIXED_LOAD_H_
#define ATTND_TESTS_INTEGRATION_MIXED_LOAD_H_

// Everything that clients do at once: forwards and backwards of many sizes,
// requests that are refused, cancelled, or past their deadline.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "kernels/attention.h"

namespace attnd::testing {

class MixedLoad {
 public:
  // Calls go round over `targets`, a connection each.
  enum class Mix {
    kEverything,
    // Forwards of 6 to 36 MiB, one in four cancelled, and as many of 16,384
    // sequences without a token.
    kLarge,
  };
  explicit MixedLoad(const std::vector<std::string>& targets,
                     Mix mix = Mix::kEverything);

  // Sends `calls` more, `kAtOnce` at a time, and returns once all have ended.
  void Run(int calls);

  // What clients saw so far, by code (0 to 16). Calls that the client ended
  // itself, by cancelling or by its deadline, are not counted.
  const std::array<std::atomic<int>, 17>& codes() const { return codes_; }

 private:
  static constexpr int kAtOnce = 16;
  enum class End { kItself, kCancelled, kDeadline };
  struct Kind {
    Op op = Op::kForward;
    grpc::ByteBuffer request;
    End end = End::kItself;
  };
  struct Call;

  void Add(int copies, Op op, const std::string& bytes, End end = End::kItself);
  void AddEverything();
  void AddLarge();
  void Start(const Kind& kind, grpc::GenericStub& stub);

  std::vector<Kind> kinds_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  int started_ = 0;
  std::array<std::atomic<int>, 17> codes_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_MIXED_LOAD_H_
