#ifndef ATTND_SERVER_HTTP2_STREAM_LEDGER_H_
#define ATTND_SERVER_HTTP2_STREAM_LEDGER_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace attnd::server::http2 {

// Which streams of a connection the server has still to end. Not thread-safe.
class StreamLedger {
 public:
  // To the peer's frames, in section 5.1's words: kHalfClosed are those that
  // the peer has ended and the server has not.
  enum class State { kIdle, kOpen, kHalfClosed, kClosed };

  State StateOf(uint32_t stream) const {
    if (stream > last_) return State::kIdle;
    const auto at = open_.find(stream);
    if (at == open_.end()) return State::kClosed;
    return at->second.is_half_closed ? State::kHalfClosed : State::kOpen;
  }
  // A stream of a number higher than any before.
  void Open(uint32_t stream, absl::Time now) {
    last_ = stream;
    open_.emplace(stream, Stream{now});
  }
  // The peer has sent END_STREAM.
  void HalfClose(uint32_t stream) {
    const auto at = open_.find(stream);
    if (at != open_.end()) at->second.is_half_closed = true;
  }
  // The peer opens the stream's window. False: it has done so more often than
  // it may without having received anything for it.
  bool TakeUpdate(uint32_t stream) {
    const auto at = open_.find(stream);
    if (at == open_.end() || at->second.updates >= kFreeUpdates) return false;
    ++at->second.updates;
    return true;
  }
  // The server has ended it, or either end has reset it: how long ago it was
  // opened, or forever if it was not open any more.
  absl::Duration End(uint32_t stream, absl::Time now) {
    const auto at = open_.find(stream);
    if (at == open_.end()) return absl::InfiniteDuration();
    const absl::Duration age = now - at->second.since;
    open_.erase(at);
    return age;
  }
  size_t open() const { return open_.size(); }
  uint32_t last() const { return last_; }

 private:
  struct Stream {
    absl::Time since;
    bool is_half_closed = false;
    int updates = 0;
  };
  // Clients open a call's window for what they will receive, and once more when
  // the answer's length is known.
  static constexpr int kFreeUpdates = 4;

  uint32_t last_ = 0;
  absl::flat_hash_map<uint32_t, Stream> open_;
};

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_STREAM_LEDGER_H_
