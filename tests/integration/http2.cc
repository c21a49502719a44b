#include "tests/integration/http2.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/hang_limit.h"

namespace attnd::testing {
namespace {

// RFC 9113, section 6.
enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kGoAway = 7,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint8_t kAck = 1;
constexpr size_t kMaxFrame = 16384;

std::string BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += char(value >> (8 * i) & 0xff);
  return text;
}

std::string Frame(FrameType type, uint8_t flags, uint32_t stream,
                  const std::string& payload) {
  return BigEndian(payload.size(), 3) + char(type) + char(flags) +
         BigEndian(stream, 4) + payload;
}

// A string of HPACK (RFC 7541, section 5.2), without Huffman coding.
std::string Text(const std::string& text) {
  return absl::StrCat(std::string(1, char(text.size())), text);
}

// A header, both parts literal and never indexed.
std::string Header(const std::string& name, const std::string& value) {
  return absl::StrCat("\x10", Text(name), Text(value));
}

int Connected(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port =
      htons(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval timeout = absl::ToTimeval(kHangLimit);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    std::abort();
  }
  return fd;
}

void Send(int fd, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n =
        send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;  // the answer, or its absence, tells
    sent += n;
  }
}

// Exactly `bytes`, or an empty string.
std::string Receive(int fd, size_t bytes) {
  std::string all(bytes, '\0');
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = recv(fd, all.data() + got, bytes - got, 0);
    if (n <= 0) return "";
    got += n;
  }
  return all;
}

struct ReceivedFrame {
  uint8_t type = 0;
  uint8_t flags = 0;
  std::string payload;
};

// Nothing when the connection ended or kHangLimit passed. Settings are
// acknowledged.
std::optional<ReceivedFrame> ReceiveFrame(int fd) {
  const std::string head = Receive(fd, 9);
  if (head.empty()) return std::nullopt;
  const auto byte = [&](int i) { return static_cast<uint8_t>(head[i]); };
  ReceivedFrame frame = {byte(3), byte(4), ""};
  frame.payload = Receive(fd, byte(0) << 16 | byte(1) << 8 | byte(2));
  if (frame.type == kSettings && (frame.flags & kAck) == 0) {
    Send(fd, Frame(kSettings, kAck, 0, ""));
  }
  return frame;
}

Http2Answer Answer(int fd) {
  Http2Answer answer;
  while (!answer.ended) {
    const std::optional<ReceivedFrame> frame = ReceiveFrame(fd);
    if (!frame.has_value()) {
      answer.ended = errno != EAGAIN && errno != EWOULDBLOCK;
      answer.reset = true;
      return answer;
    }
    switch (frame->type) {
      case kHeaders:
        answer.headers += frame->payload;
        answer.ended = (frame->flags & kEndStream) != 0;
        break;
      case kData:
        answer.ended = (frame->flags & kEndStream) != 0;
        break;
      case kReset:
      case kGoAway:
        answer.ended = answer.reset = true;
        break;
      default:
        break;
    }
  }
  return answer;
}

}  // namespace

bool Http2Answer::Says(const std::string& name,
                       const std::string& value) const {
  return absl::StrContains(headers, Text(name) + Text(value));
}

int SendRawHttp2Call(
    const std::string& address, const std::string& path,
    const std::vector<std::pair<std::string, std::string>>& headers,
    const std::string& message, uint32_t missing_bytes) {
  std::string block = Header(":method", "POST") + Header(":scheme", "http") +
                      Header(":path", path) + Header(":authority", "test") +
                      Header("te", "trailers") +
                      Header("content-type", "application/grpc");
  for (const auto& [name, value] : headers) block += Header(name, value);
  const int fd = Connected(address);
  Send(fd, absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                        Frame(kSettings, 0, 0, "")));
  // gRPC enforces its limits once they are acknowledged.
  for (std::optional<ReceivedFrame> frame = ReceiveFrame(fd);
       frame.has_value() &&
       (frame->type != kSettings || (frame->flags & kAck) != 0);) {
    frame = ReceiveFrame(fd);
  }
  std::string bytes;
  for (size_t at = 0; at < block.size(); at += kMaxFrame) {
    const bool last = at + kMaxFrame >= block.size();
    absl::StrAppend(
        &bytes, Frame(at == 0 ? kHeaders : kContinuation,
                      last ? kEndHeaders : 0, 1, block.substr(at, kMaxFrame)));
  }
  std::string body(1, '\0');  // not compressed
  absl::StrAppend(&body, BigEndian(message.size() + missing_bytes, 4), message);
  for (size_t at = 0; at < body.size(); at += kMaxFrame) {
    const bool last = at + kMaxFrame >= body.size() && missing_bytes == 0;
    absl::StrAppend(&bytes, Frame(kData, last ? kEndStream : 0, 1,
                                  body.substr(at, kMaxFrame)));
  }
  Send(fd, bytes);
  return fd;
}

Http2Answer RawHttp2Call(
    const std::string& address, const std::string& path,
    const std::vector<std::pair<std::string, std::string>>& headers,
    const std::string& message, uint32_t missing_bytes) {
  const int fd =
      SendRawHttp2Call(address, path, headers, message, missing_bytes);
  Http2Answer answer = Answer(fd);
  close(fd);
  return answer;
}

}  // namespace attnd::testing
