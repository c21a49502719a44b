#ifndef ATTND_SERVER_HTTP2_FRAME_WALK_H_
#define ATTND_SERVER_HTTP2_FRAME_WALK_H_

// What one end of a connection sends, cut into frames as it comes.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "server/http2/frame.h"

namespace attnd::server::http2 {

// Keeps no payload: a large one costs as much as a small one. Not thread-safe.
class FrameWalk {
 public:
  // Takes the next bytes, and tells `visitor` in order:
  //   bool OnFrame(const Frame&)           a frame begins
  //   bool OnPayload(const Frame&, Bytes)  a piece of its payload, never empty
  //   bool OnFrameEnd(const Frame&)        that was all of it
  // As soon as one says false, Feed stops for good, and says so itself.
  template <typename Visitor>
  bool Feed(Bytes bytes, Visitor& visitor) {
    while (!bytes.empty()) {
      if (header_bytes_ < kFrameHeaderBytes) {
        const size_t piece =
            std::min(bytes.size(), kFrameHeaderBytes - header_bytes_);
        std::copy_n(bytes.begin(), piece, header_.begin() + header_bytes_);
        header_bytes_ += piece;
        bytes.remove_prefix(piece);
        if (header_bytes_ < kFrameHeaderBytes) return true;
        frame_ = ParseFrame(header_);
        left_ = frame_.length;
        if (!visitor.OnFrame(frame_)) return false;
      }
      const size_t piece = std::min<size_t>(bytes.size(), left_);
      if (piece > 0 && !visitor.OnPayload(frame_, bytes.first(piece))) {
        return false;
      }
      bytes.remove_prefix(piece);
      left_ -= static_cast<uint32_t>(piece);
      if (left_ > 0) return true;
      header_bytes_ = 0;
      if (!visitor.OnFrameEnd(frame_)) return false;
    }
    return true;
  }

  // Whether the next byte begins a frame.
  bool is_between_frames() const { return header_bytes_ == 0; }

 private:
  std::array<uint8_t, kFrameHeaderBytes> header_{};
  size_t header_bytes_ = 0;  // of header_, that are here
  Frame frame_;              // once all of them are
  uint32_t left_ = 0;        // of its payload
};

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_FRAME_WALK_H_
