#ifndef ATTND_TESTS_INTEGRATION_HTTP2_H_
#define ATTND_TESTS_INTEGRATION_HTTP2_H_

// One gRPC call as bytes on a socket, for what no gRPC library would send.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attnd::testing {

struct Http2Answer {
  bool ended = false;   // the stream or the connection ended within kHangLimit
  bool reset = false;   // by RST_STREAM, GOAWAY or a closed connection
  std::string headers;  // the header blocks, still packed

  // Whether a header of a name that HPACK's static table lacks has this value,
  // sent as gRPC does the first time: both as plain literals.
  bool Says(const std::string& name, const std::string& value) const;
};

// Calls `path` on "host:port" with further `headers`, names and values of up to
// 126 bytes each, and one message of at most 60 KiB, which is what a connection
// may send before any answer. The message lacks its last `missing_bytes`: where
// there are any, the call stalls. The answer is not read; the socket is
// returned.
int SendRawHttp2Call(
    const std::string& address, const std::string& path,
    const std::vector<std::pair<std::string, std::string>>& headers,
    const std::string& message, uint32_t missing_bytes = 0);

// The same, and waits for the answer.
Http2Answer RawHttp2Call(
    const std::string& address, const std::string& path,
    const std::vector<std::pair<std::string, std::string>>& headers,
    const std::string& message, uint32_t missing_bytes = 0);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_HTTP2_H_
