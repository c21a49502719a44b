// What is no HTTP/2, or ends too soon to be.

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

// A ClientHello of TLS 1.2 with one cipher suite and no extensions.
std::string ClientHello() {
  const std::string hello = absl::StrCat("\x03\x03", std::string(32, 'r'),
                                         std::string("\0\0\2\x13\1\1\0", 7));
  const std::string handshake =
      absl::StrCat("\1", BigEndian(hello.size(), 3), hello);
  return absl::StrCat("\x16\3\1", BigEndian(handshake.size(), 2), handshake);
}

// The beginning of one, and then the client ends its side: so does the server.
MalformedCase CutShort(std::string name, std::string bytes) {
  return {.name = std::move(name),
          .section = "3.4",
          .bytes = std::move(bytes),
          .expected = {Closed()},
          .then = Then::kFinish,
          .raw = true};
}

// A connection whose first bytes are no preface.
MalformedCase NoPreface(std::string name, std::string bytes,
                        Then then = Then::kFinish) {
  MalformedCase c = ConnectionCase(std::move(name), "3.4", std::move(bytes),
                                   ErrorCode::kProtocol);
  c.then = then;
  c.raw = true;
  return c;
}

// A good preface, and then a first frame that is not SETTINGS.
MalformedCase FirstFrame(std::string name, const std::string& frame) {
  return NoPreface(absl::StrCat(name, " before SETTINGS"),
                   absl::StrCat(kPreface, frame), Then::kCall);
}

}  // namespace

MalformedCases ConnectionStartCases() {
  const std::string settings = Frame(kSettings, 0, 0);
  const std::string preface = kPreface;
  const std::string good = preface + settings;
  MalformedCases cases = {
      CutShort("no byte at all", ""),
      CutShort("one byte", "P"),
      CutShort("half a preface", preface.substr(0, 12)),
      CutShort("a preface less its last byte", preface.substr(0, 23)),
      CutShort("a preface and nothing", preface),
      CutShort("a preface and half a SETTINGS",
               preface + settings.substr(0, 5)),
      NoPreface("a preface of HTTP/2.1",
                "PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n" + settings, Then::kCall),
      NoPreface("a preface in lower case",
                "pri * http/2.0\r\n\r\nsm\r\n\r\n" + settings, Then::kCall),
      NoPreface("a preface with bare newlines",
                "PRI * HTTP/2.0\n\nSM\n\n" + settings, Then::kCall),
      NoPreface("an empty line before the preface", "\r\n" + good, Then::kCall),
      NoPreface("settings without a preface", settings, Then::kCall),
      NoPreface("a ClientHello", ClientHello(), Then::kCall),
      NoPreface("HTTP/1.1 GET", "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n"),
      NoPreface("HTTP/1.1 with an upgrade to h2c",
                "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade, "
                "HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n"),
      NoPreface("HTTP/1.0 without a header", "GET /\r\n\r\n"),
      NoPreface("HTTP/1.1 CONNECT", "CONNECT a:1 HTTP/1.1\r\n\r\n"),
      NoPreface("SSH", "SSH-2.0-OpenSSH_9.2\r\n"),
      NoPreface("a line of PROXY protocol",
                "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + good, Then::kCall),
      NoPreface("zeros", std::string(64, '\0'), Then::kCall),
      NoPreface("ones", std::string(64, '\xff'), Then::kCall),
      FirstFrame("PING", Frame(kPing, 0, 0, "12345678")),
      FirstFrame("HEADERS", ""),  // of the call that follows
      FirstFrame("DATA", Frame(kData, 0, 1, "x")),
      FirstFrame("PRIORITY", Frame(kPriority, 0, 1, std::string(5, '\1'))),
      FirstFrame("RST_STREAM", Frame(kReset, 0, 1, BigEndian(8, 4))),
      FirstFrame("WINDOW_UPDATE", Frame(kWindowUpdate, 0, 0, BigEndian(1, 4))),
      FirstFrame("GOAWAY", Frame(kGoAway, 0, 0, std::string(8, '\0'))),
      FirstFrame("CONTINUATION", Frame(kContinuation, kEndHeaders, 1)),
      FirstFrame("an unknown frame", Frame(0x77, 0, 0, "x") + settings),
      FirstFrame("an acknowledgement", Frame(kSettings, kAck, 0)),
  };
  // Its second "PRI" is the length of a frame.
  cases.push_back(ConnectionCase("the preface twice", "4.2", preface,
                                 ErrorCode::kFrameSize));
  return cases;
}

}  // namespace attnd::testing
