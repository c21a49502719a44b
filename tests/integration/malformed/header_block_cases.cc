// The frames of one header block, and what comes between them.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

MalformedCase Protocol(std::string name, std::string section,
                       std::string bytes) {
  return ConnectionCase(std::move(name), std::move(section), std::move(bytes),
                        ErrorCode::kProtocol);
}

// Each kind of frame inside the block of stream 1, which goes on behind it.
void AddInterleaved(MalformedCases& cases) {
  const std::string block = GoodHeaders();
  const std::string first = Frame(kHeaders, 0, 1, block.substr(0, 20));
  const std::string rest =
      Frame(kContinuation, kEndHeaders, 1, block.substr(20));
  const std::pair<const char*, std::string> between[] = {
      {"DATA", Frame(kData, 0, 1, "x")},
      {"HEADERS", Frame(kHeaders, kEndHeaders, 1, block)},
      {"HEADERS of another stream", Frame(kHeaders, kEndHeaders, 3, block)},
      {"PRIORITY", Frame(kPriority, 0, 1, std::string(5, '\0'))},
      {"RST_STREAM", Frame(kReset, 0, 1, BigEndian(8, 4))},
      {"SETTINGS", Frame(kSettings, 0, 0)},
      {"an acknowledgement", Frame(kSettings, kAck, 0)},
      {"PUSH_PROMISE", Frame(kPushPromise, kEndHeaders, 1, BigEndian(2, 4))},
      {"PING", Frame(kPing, 0, 0, "12345678")},
      {"GOAWAY", Frame(kGoAway, 0, 0, std::string(8, '\0'))},
      {"WINDOW_UPDATE", Frame(kWindowUpdate, 0, 0, BigEndian(1, 4))},
      {"WINDOW_UPDATE of its stream",
       Frame(kWindowUpdate, 0, 1, BigEndian(1, 4))},
      {"an unknown frame", Frame(0x77, 0, 0, "x")},
      {"an unknown frame of its stream", Frame(0x77, 0, 1, "x")},
      {"CONTINUATION of another stream", Frame(kContinuation, 0, 3)},
      {"CONTINUATION of stream 0", Frame(kContinuation, 0, 0)},
  };
  for (const auto& [name, bytes] : between) {
    cases.push_back(Protocol(absl::StrCat(name, " inside a header block"),
                             "6.10", first + bytes + rest));
  }
  cases.push_back(
      Protocol("DATA inside a block that CONTINUATION goes on with", "6.10",
               first + Frame(kContinuation, 0, 1, block.substr(20)) +
                   Frame(kData, kEndStream, 1, Prefixed(""))));
}

void AddContinuations(MalformedCases& cases) {
  const std::string more = PackedHeader("x-more", "y");
  const std::string continuation = Frame(kContinuation, kEndHeaders, 1, more);
  const MalformedCase added[] = {
      Protocol("CONTINUATION of no HEADERS", "6.10", continuation),
      Protocol("CONTINUATION after END_HEADERS", "6.10",
               OpenStream() + continuation),
      Protocol("an empty CONTINUATION after END_HEADERS", "6.10",
               OpenStream() + Frame(kContinuation, kEndHeaders, 1)),
      Protocol("CONTINUATION after DATA", "6.10",
               OpenStream() + Frame(kData, 0, 1, Prefixed("").substr(0, 1)) +
                   continuation),
      Protocol("CONTINUATION after END_STREAM", "6.10",
               WatchCall() + continuation),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

// Trailers end their stream, and have no pseudo headers. Half a message comes
// before them, so that nobody answers sooner.
void AddTrailers(MalformedCases& cases) {
  const std::string body = Frame(kData, 0, 1, GoodBody().substr(0, 50));
  const auto malformed = [&](std::string name, uint8_t flags,
                             const std::string& block) -> MalformedCase {
    return {.name = std::move(name),
            .section = "8.1",
            .bytes = OpenStream() + body + Frame(kHeaders, flags, 1, block),
            .expected = {StreamError(ErrorCode::kProtocol),
                         ConnectionError(ErrorCode::kProtocol), Http(400)}};
  };
  const std::string no_rules = "gRPC takes any header for a trailer";
  const MalformedCase added[] = {
      malformed("trailers without END_STREAM", kEndHeaders,
                PackedHeader("x-more", "y")),
      malformed("HEADERS of a request twice", kEndHeaders, GoodHeaders()),
      But(malformed("trailers with a :path", kEndHeaders | kEndStream,
                    PackedHeader(":path", kForwardPath)),
          Status(3), no_rules),
      But(malformed("trailers with a :status", kEndHeaders | kEndStream,
                    PackedHeader(":status", "200")),
          Status(3), no_rules),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

}  // namespace

MalformedCases HeaderBlockCases() {
  MalformedCases cases;
  AddInterleaved(cases);
  AddContinuations(cases);
  AddTrailers(cases);
  return cases;
}

}  // namespace attnd::testing
