#include "server/net/guarded_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/guard/system_calls.h"

namespace attnd::server {
namespace {

absl::Span<const iovec> Pieces(const msghdr& message) {
  return {message.msg_iov, message.msg_iovlen};
}

http2::Bytes BytesOf(const iovec& piece, size_t most) {
  return {static_cast<const uint8_t*>(piece.iov_base),
          std::min(piece.iov_len, most)};
}

void AppendBigEndian(uint32_t value, int bytes, std::string& to) {
  for (int at = bytes - 1; at >= 0; --at) {
    to.push_back(static_cast<char>(value >> (8 * at)));
  }
}

// RFC 9113, section 6.8.
std::string GoAway(const http2::Violation& why, uint32_t last_stream) {
  std::string frame;
  AppendBigEndian(static_cast<uint32_t>(8 + why.what.size()), 3, frame);
  AppendBigEndian(http2::kGoAway, 1, frame);
  AppendBigEndian(0, 1, frame);
  AppendBigEndian(0, 4, frame);
  AppendBigEndian(last_stream, 4, frame);
  AppendBigEndian(static_cast<uint32_t>(why.code), 4, frame);
  frame.append(why.what.data(), why.what.size());
  return frame;
}

}  // namespace

GuardedConnection::GuardedConnection(int fd,
                                     const http2::InspectorOptions& options,
                                     std::unique_ptr<TlsStream> tls,
                                     std::unique_ptr<TlsPeers::Entry> peer,
                                     std::function<void(const Cut&)> on_cut)
    : fd_(fd),
      tls_(std::move(tls)),
      peer_(std::move(peer)),
      on_cut_(std::move(on_cut)),
      inspector_(options) {}

ssize_t GuardedConnection::Receive(msghdr* message, int flags) {
  if (is_cut_.load(std::memory_order_relaxed)) {
    errno = ECONNRESET;
    return -1;
  }
  ssize_t bytes = 0;
  if (tls_ == nullptr) {
    bytes = system_calls::Recvmsg(fd_, message, flags);
  } else {
    bytes = tls_->Receive(Pieces(*message));
    message->msg_controllen = 0;
    message->msg_flags = 0;
  }
  if (bytes <= 0 || Inspect(Pieces(*message), bytes)) return bytes;
  errno = ECONNRESET;
  return -1;
}

ssize_t GuardedConnection::Send(const msghdr* message, int flags) {
  MutexLock one_at_a_time(sending_);
  if (is_cut_.load(std::memory_order_relaxed)) {
    errno = EPIPE;
    return -1;
  }
  const absl::Span<const iovec> pieces = Pieces(*message);
  const ssize_t bytes = tls_ == nullptr
                            ? system_calls::Sendmsg(fd_, message, flags)
                            : tls_->Send(pieces);
  if (bytes <= 0) return bytes;
  const absl::Time now = MonotonicNow();
  MutexLock lock(mutex_);
  size_t left = static_cast<size_t>(bytes);
  for (const iovec& piece : pieces) {
    if (left == 0) break;
    const http2::Bytes sent = BytesOf(piece, left);
    inspector_.Sent(sent, now);
    left -= sent.size();
  }
  return bytes;
}

bool GuardedConnection::Inspect(absl::Span<const iovec> received,
                                ssize_t bytes) {
  const absl::Time now = MonotonicNow();
  std::optional<http2::Violation> violation;
  {
    MutexLock lock(mutex_);
    size_t left = static_cast<size_t>(bytes);
    for (const iovec& piece : received) {
      if (left == 0) break;
      const http2::Bytes some = BytesOf(piece, left);
      violation = inspector_.Received(some, now);
      if (violation.has_value()) break;
      left -= some.size();
    }
  }
  if (violation.has_value()) End(*violation);
  return !violation.has_value();
}

void GuardedConnection::End(const http2::Violation& why) {
  SendGoAway(why);
  if (!on_cut_) return;
  Cut cut{.why = why};
  {
    MutexLock lock(mutex_);
    cut.frames = inspector_.received_frames();
    cut.bytes = inspector_.received_bytes();
  }
  on_cut_(cut);
}

void GuardedConnection::SendGoAway(const http2::Violation& why) {
  MutexLock nobody_sends(sending_);
  is_cut_.store(true, std::memory_order_relaxed);
  std::string frame;
  {
    MutexLock lock(mutex_);
    // What is on its way has an end that only gRPC knows.
    if (!inspector_.is_between_sent_frames()) return;
    frame = GoAway(why, inspector_.last_stream());
  }
  iovec piece = {frame.data(), frame.size()};
  if (tls_ != nullptr) {
    (void)tls_->Send({&piece, 1});
    return;
  }
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  (void)system_calls::Sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool GuardedConnection::Goodbye() {
  if (tls_ != nullptr) tls_->SayGoodbye();
  return !is_cut_.load(std::memory_order_relaxed);
}

}  // namespace attnd::server
