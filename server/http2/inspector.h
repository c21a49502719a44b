#ifndef ATTND_SERVER_HTTP2_INSPECTOR_H_
#define ATTND_SERVER_HTTP2_INSPECTOR_H_

// Looks at a client's connection before gRPC does, and says when it must end.
//
// gRPC (1.51) can be brought down by a few kilobytes a second of frames that
// HTTP/2 allows: headers without end, streams that are opened and reset at once
// (CVE-2023-44487), floods of frames that carry nothing. None of its arguments
// helps. An inspector knows neither sockets, threads nor the time: it is told
// the bytes that either end has sent. Payloads of DATA are never looked at, so
// a megabyte costs what a byte costs.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "server/http2/budget.h"
#include "server/http2/frame.h"
#include "server/http2/frame_walk.h"
#include "server/http2/header_block.h"
#include "server/http2/stream_ledger.h"
#include "server/http2/violation.h"

namespace attnd::server::http2 {

struct InspectorOptions {
  int max_streams = 1024;  // SETTINGS_MAX_CONCURRENT_STREAMS
  int64_t max_header_list_bytes = 16 << 10;
  uint32_t max_frame_bytes = 2 << 20;  // SETTINGS_MAX_FRAME_SIZE
  // In which a peer must acknowledge the server's SETTINGS, if it sends
  // anything at all.
  absl::Duration settings_time = absl::Seconds(10);
};

// Not thread-safe. What one end sends must come in order.
class Inspector {
 public:
  explicit Inspector(const InspectorOptions& options);

  // What the peer has sent. `now` is MonotonicNow(). A violation ends the
  // connection: nothing of `bytes` must reach gRPC, and nothing that follows.
  std::optional<Violation> Received(Bytes bytes, absl::Time now);
  // What the server has sent.
  void Sent(Bytes bytes, absl::Time now);

  // Whether a frame may be sent now, or one of the server's is on its way.
  bool is_between_sent_frames() const { return sent_.is_between_frames(); }
  // How much the peer has sent so far.
  int64_t received_bytes() const { return received_bytes_; }
  int64_t received_frames() const { return received_frames_; }
  // The last stream that it has opened; 0: none.
  uint32_t last_stream() const { return streams_.last(); }

 private:
  // Who is told of either end's frames. FromPeer leaves why it stopped in
  // violation_.
  class FromPeer;
  class FromServer;

  bool TakePreface(Bytes& bytes);
  // Of frames of the peer.
  std::optional<Violation> Begin(const Frame& frame);
  std::optional<Violation> Payload(const Frame& frame, Bytes payload);
  std::optional<Violation> End(const Frame& frame);
  std::optional<Violation> CheckStream(const Frame& frame);
  std::optional<Violation> BeginHeaders(const Frame& frame);
  std::optional<Violation> BeginSettings(const Frame& frame);
  std::optional<Violation> PayOf(const Frame& frame);
  std::optional<Violation> PayReset(uint32_t stream);

  // Of frames of the server.
  void BeginSent(const Frame& frame);
  void EndSent(const Frame& frame);

  const InspectorOptions options_;
  absl::Time now_;  // of the call that is under way
  std::optional<Violation> violation_;

  FrameWalk received_;
  size_t preface_bytes_ = 0;
  int64_t received_bytes_ = 0;
  int64_t received_frames_ = 0;
  HeaderBlock headers_;
  uint64_t setting_ = 0;  // the bytes of one, so far
  int setting_bytes_ = 0;
  uint32_t increment_ = 0;  // of a WINDOW_UPDATE, so far

  FrameWalk sent_;
  uint32_t sent_code_ = 0;  // of an RST_STREAM
  // SETTINGS that the peer has not acknowledged: below 0 for the moment in
  // which it has, and the server has not said yet that they were sent.
  int64_t owed_ = 0;
  bool has_sent_settings_ = false;
  bool has_acknowledged_ = false;
  // Until when the peer must have done so for the first.
  absl::Time owed_until_ = absl::InfiniteFuture();

  StreamLedger streams_;
  Budget resets_;
  Budget late_resets_;  // of streams that the server has ended
  Budget settings_;
  Budget pings_;
  Budget window_updates_;
  Budget empty_data_;
  Budget others_;
};

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_INSPECTOR_H_
