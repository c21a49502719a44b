#include "tests/integration/http2.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/http2_socket.h"

namespace attnd::testing {
namespace {

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
  return absl::StrContains(headers, PackedText(name) + PackedText(value));
}

int SendRawHttp2Call(
    const std::string& address, const std::string& path,
    const std::vector<std::pair<std::string, std::string>>& headers,
    const std::string& message, uint32_t missing_bytes) {
  const std::string block =
      PackedHeaders(CallHeaders(path)) + PackedHeaders(headers);
  const int fd = ConnectedSocket(address);
  StartHttp2(fd);  // gRPC enforces its limits once they are acknowledged
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
  SendBytes(fd, bytes);
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
