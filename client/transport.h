#ifndef ATTND_CLIENT_TRANSPORT_H_
#define ATTND_CLIENT_TRANSPORT_H_

// One unary attempt on the network, as the client core sees it. The gRPC
// implementation is grpc_transport.h; tests have one that they step by hand.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/wire/codec.h"

namespace attnd::client {

// A received message: fragments that live as long as this does.
class Response {
 public:
  virtual ~Response() = default;
  virtual absl::Span<const absl::string_view> fragments() const = 0;
};

class Transport {
 public:
  using Result = absl::StatusOr<std::unique_ptr<Response>>;
  using Completion = absl::AnyInvocable<void(Result)>;

  virtual ~Transport() = default;

  // Starts one attempt of `method` ("/package.Service/Method"). `pieces` and
  // what they borrow must live, unchanged, until `done` is called: exactly
  // once, when the outcome is known and the transport has let go of all of
  // them. `done` may run on any thread, also before Start returns, perhaps
  // under the transport's own locks: it must neither block nor call back.
  // Never blocks. The returned function cancels the attempt; calling it late
  // does nothing. `deadline` is of MonotonicNow(). Thread-safe.
  virtual std::function<void()> Start(const std::string& method,
                                      const std::vector<wire::Piece>& pieces,
                                      absl::Time deadline, Completion done) = 0;

  // As Start, for a caller who waits for the outcome anyway: may block until
  // it is known.
  virtual void Run(const std::string& method,
                   const std::vector<wire::Piece>& pieces, absl::Time deadline,
                   Completion done) {
    Start(method, pieces, deadline, std::move(done));
  }
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TRANSPORT_H_
