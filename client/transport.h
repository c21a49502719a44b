#ifndef ATTND_CLIENT_TRANSPORT_H_
#define ATTND_CLIENT_TRANSPORT_H_

// The network as the client core sees it: unary attempts, and streams. The gRPC
// implementation is grpc_transport.h; tests have one that they step by hand.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/wire/codec.h"

namespace attnd::client {

// What the server hears of a call beside its messages.
struct CallHeaders {
  absl::Time deadline = absl::InfiniteFuture();  // of MonotonicNow()
  // As CallOptions have them; empty: not said.
  std::string request_id = {}, traceparent = {};
};

// A received message: fragments that live as long as this does.
class Response {
 public:
  virtual ~Response() = default;
  virtual absl::Span<const absl::string_view> fragments() const = 0;
};

// What happens on a stream. Events come on any thread, OnWritten also beside
// OnMessage, and beside itself once it has written. They may call the stream.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  // The last message written has been taken, and another may be; or not, as the
  // stream is about to end.
  virtual void OnWritten(bool ok) = 0;
  // A message, there until this returns. No other is read before then.
  virtual void OnMessage(absl::Span<const absl::string_view> fragments) = 0;
  // The last event, once all others have returned and the transport has let go
  // of all that was written. May run under the transport's own locks: it must
  // neither block nor call back.
  virtual void OnEnd(absl::Status status) = 0;
};

// A call with a stream of messages in each direction. Thread-safe; nothing here
// blocks or has an event before it returns. What comes after the stream's end
// does nothing.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Begins the call with its first message, exactly once, also after Cancel:
  // OnEnd will follow. What the pieces borrow must live, unchanged, until then.
  virtual void Start(const std::vector<wire::Piece>& pieces) = 0;
  // As Start's. Not before the message before this one has been taken.
  virtual void Write(const std::vector<wire::Piece>& pieces) = 0;
  // No message will follow. Not before the last one has been taken.
  virtual void CloseWrites() = 0;
  virtual void Cancel() = 0;
};

class OpenedCall;

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
  // does nothing. Thread-safe.
  virtual std::function<void()> Start(const std::string& method,
                                      const std::vector<wire::Piece>& pieces,
                                      const CallHeaders& headers,
                                      Completion done) = 0;

  // As Start, for a caller who waits for the outcome anyway: may block until
  // it is known.
  virtual void Run(const std::string& method,
                   const std::vector<wire::Piece>& pieces,
                   const CallHeaders& headers, Completion done) {
    Start(method, pieces, headers, std::move(done));
  }

  // Tells the server of a call whose message, of at most `bytes`, is still
  // being made, so that it wakes up meanwhile. Null: there is no way to, and
  // Run sends all at once. Never blocks.
  virtual std::unique_ptr<OpenedCall> Open(const std::string& /*method*/,
                                           int64_t /*bytes*/,
                                           const CallHeaders& /*headers*/) {
    return nullptr;
  }

  // Takes a turn at the connections. Streams of turns that follow one another
  // use different ones, as long as there are.
  virtual uint32_t TakeTurn() = 0;
  // A stream of `method` over the connection of `turn`, not started. `events`
  // must live until OnEnd has returned. Never blocks. UNAVAILABLE: there is no
  // connection. Thread-safe.
  virtual absl::StatusOr<std::shared_ptr<ByteStream>> OpenStream(
      const std::string& method, uint32_t turn, const CallHeaders& headers,
      StreamEvents& events) = 0;
};

// A call that the server has been told of. For one thread; the transport must
// outlive it. Ends by being run, or else is cancelled when it is destroyed.
class OpenedCall {
 public:
  virtual ~OpenedCall() = default;
  // At most once, and as Transport::Run does.
  virtual void Run(const std::vector<wire::Piece>& pieces,
                   Transport::Completion done) = 0;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TRANSPORT_H_
