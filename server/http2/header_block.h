#ifndef ATTND_SERVER_HTTP2_HEADER_BLOCK_H_
#define ATTND_SERVER_HTTP2_HEADER_BLOCK_H_

// The headers of one HEADERS frame and of the CONTINUATION frames after it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/http2/frame.h"
#include "server/http2/header_list.h"
#include "server/http2/violation.h"

namespace attnd::server::http2 {

// gRPC (1.51) bounds the headers of each frame and not what several make up
// together, and keeps a string that is announced as longer than any limit while
// it comes. Here a block's bytes are bounded while it comes, and looked at as
// soon as it is whole. What one frame brings beyond the limit, within reason,
// is left to gRPC, which refuses the call alone and says why. In how many
// frames it comes is the caller's to bound. Not thread-safe.
class HeaderBlock {
 public:
  // `max_list_bytes` is SETTINGS_MAX_HEADER_LIST_SIZE's.
  explicit HeaderBlock(uint64_t max_list_bytes);

  // Whether more of one must come before anything else may.
  bool is_open() const { return is_open_; }
  uint32_t stream() const { return stream_; }

  // A frame of it begins, a HEADERS or a CONTINUATION, as is_open() has it.
  std::optional<Violation> Begin(const Frame& frame);
  void Append(Bytes payload);
  std::optional<Violation> End(const Frame& frame);

 private:
  // Of HEADERS: without padding and priority.
  std::optional<Violation> TrimFirst(const Frame& frame);

  const uint64_t max_list_bytes_;
  const uint64_t most_bytes_;  // of a block
  HeaderListSizer sizer_;
  bool is_open_ = false;
  uint32_t stream_ = 0;
  bool is_continued_ = false;  // it is of more frames than one
  std::vector<uint8_t> bytes_;
};

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_HEADER_BLOCK_H_
