#ifndef ATTND_SERVER_TRANSFER_STREAM_CALLS_H_
#define ATTND_SERVER_TRANSFER_STREAM_CALLS_H_

#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "server/transfer/transfer_stream.h"

namespace attnd::server {

// What streams are to do, decided under a transfer's lock and done without it:
// a stream may read from or write to the network before it returns, and others
// of the transfer need the lock meanwhile. Declared before the lock is taken,
// so that its end, which makes the calls, comes after.
class StreamCalls {
 public:
  using Call = absl::AnyInvocable<void(TransferStream& stream)>;

  StreamCalls() = default;
  ~StreamCalls() { Make(); }
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  void Add(std::shared_ptr<TransferStream> stream, Call call) {
    calls_.emplace_back(std::move(stream), std::move(call));
  }
  // Makes them now, in order. Without the lock.
  void Make() {
    for (auto& [stream, call] : calls_) std::move(call)(*stream);
    calls_.clear();
  }

 private:
  absl::InlinedVector<std::pair<std::shared_ptr<TransferStream>, Call>, 2>
      calls_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_STREAM_CALLS_H_
