#ifndef ATTND_TESTS_INTEGRATION_MIXED_LOAD_H_
#define ATTND_TESTS_INTEGRATION_MIXED_LOAD_H_

// Everything that clients do at once: forwards and backwards of many sizes,
// requests that are refused, cancelled, or past their deadline.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "kernels/attention.h"

namespace attnd::testing {

// The server has two compute threads: some requests must take their time.
class MixedLoad {
 public:
  // Calls go round over `targets`, a connection each.
  enum class Mix {
    kEverything,
    // Forwards of 6 to 36 MiB, one in four cancelled as soon as it is sent,
    // and as many of 16,384 sequences without a token.
    kLarge,
  };
  explicit MixedLoad(const std::vector<std::string>& targets,
                     Mix mix = Mix::kEverything);

  // Sends `calls` more, `kAtOnce` at a time, and returns once all have ended.
  void Run(int calls);

  // Every call so far by its method and the code (0 to 16) that the client saw.
  using Codes = std::array<int, 17>;
  const Codes& codes(Op op) const { return codes_[static_cast<int>(op)]; }

 private:
  static constexpr int kAtOnce = 16;
  enum class End {
    kItself,
    kCancelledAtOnce,    // perhaps before the server sees it
    kCancelledOnServer,  // once a later call on its connection has ended
    kDeadline,           // of 10 ms
  };
  struct Kind {
    Op op = Op::kForward;
    grpc::ByteBuffer request;
    End end = End::kItself;
  };
  struct Call;

  void Add(int copies, Op op, const std::string& bytes, End end = End::kItself);
  void AddEverything();
  void AddLarge();
  void Start(const Kind& kind, int connection);
  void Ended(const std::shared_ptr<Call>& call, int code);

  std::vector<Kind> kinds_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  int started_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
  Codes codes_[2] = {};
  // Calls to cancel, in the order they started.
  std::list<std::shared_ptr<Call>> to_cancel_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_MIXED_LOAD_H_
