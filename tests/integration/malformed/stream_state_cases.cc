// Frames on streams that their type, their number or what came before forbids.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

std::string Window(uint32_t stream) {
  return Frame(kWindowUpdate, 0, stream, BigEndian(1, 4));
}
std::string Reset(uint32_t stream) {
  return Frame(kReset, 0, stream, BigEndian(8, 4));
}
std::string Priority(uint32_t stream) {
  return Frame(kPriority, 0, stream, std::string("\0\0\0\0\x0f", 5));
}
std::string Headers(uint32_t stream) {
  return Frame(kHeaders, kEndHeaders, stream, GoodHeaders());
}
std::string Trailers() {
  return Frame(kHeaders, kEndHeaders | kEndStream, 1,
               PackedHeader("x-more", "y"));
}
std::string Data(uint32_t stream) { return Frame(kData, 0, stream, "x"); }

MalformedCase Protocol(std::string name, std::string section,
                       std::string bytes) {
  return ConnectionCase(std::move(name), std::move(section), std::move(bytes),
                        ErrorCode::kProtocol);
}

void AddWrongStreams(MalformedCases& cases) {
  const std::string open = OpenStream();
  const std::string settings = Frame(kSettings, 0, 1);
  const std::string ping = Frame(kPing, 0, 1, "12345678");
  const std::string goaway = Frame(kGoAway, 0, 1, std::string(8, '\0'));
  const std::string promise =
      Frame(kPushPromise, kEndHeaders, 1, BigEndian(2, 4) + GoodHeaders());
  const MalformedCase added[] = {
      Protocol("DATA on stream 0", "6.1", Data(0)),
      Protocol("HEADERS on stream 0", "6.2", Headers(0)),
      Protocol("PRIORITY on stream 0", "6.3", Priority(0)),
      Protocol("RST_STREAM on stream 0", "6.4", Reset(0)),
      Protocol("SETTINGS on a stream", "6.5", settings),
      Protocol("SETTINGS on an open stream", "6.5", open + settings),
      Protocol("an acknowledgement on a stream", "6.5",
               Frame(kSettings, kAck, 1)),
      Protocol("PUSH_PROMISE on stream 0", "6.6",
               Frame(kPushPromise, kEndHeaders, 0, BigEndian(2, 4))),
      Protocol("PUSH_PROMISE of a client", "8.4", open + promise),
      Protocol("PING on a stream", "6.7", ping),
      Protocol("PING on an open stream", "6.7", open + ping),
      Protocol("GOAWAY on a stream", "6.8", goaway),
      Protocol("GOAWAY on an open stream", "6.8", open + goaway),
      Protocol("CONTINUATION on stream 0", "6.10",
               Frame(kContinuation, kEndHeaders, 0, GoodHeaders())),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

constexpr char kGivenUp[] =
    "gRPC's own clients reset a stream that is given up before its headers "
    "have left";

void AddIdleStreams(MalformedCases& cases) {
  for (const uint32_t stream : {1u, 2u, 0x7fffffffu}) {
    const std::string on = absl::StrCat(" on idle stream ", stream);
    cases.push_back(Protocol("DATA" + on, "5.1", Data(stream)));
    for (MalformedCase given_up :
         {Protocol("RST_STREAM" + on, "6.4", Reset(stream)),
          Protocol("WINDOW_UPDATE" + on, "5.1", Window(stream))}) {
      // Of a stream that could be a client's.
      if (stream % 2 == 1) given_up = But(given_up, Ignored(), kGivenUp);
      cases.push_back(given_up);
    }
  }
  cases.push_back(Protocol("HEADERS on an even stream", "5.1.1", GoodCall(2)));
  cases.push_back(Protocol("HEADERS on an even stream after an odd one",
                           "5.1.1", OpenStream() + GoodCall(4)));
  MalformedCase below = Protocol("HEADERS on a stream below the last", "5.1.1",
                                 Headers(5) + Headers(3));
  below.expected.push_back(ConnectionError(ErrorCode::kStreamClosed));
  cases.push_back(below);
  // Stream 5 has closed stream 3, and on closed streams DATA may be ignored.
  cases.push_back(
      {.name = "DATA on a stream that was left out",
       .section = "5.1.1",
       .bytes = Headers(5) + Data(3),
       .expected = {StreamError(ErrorCode::kStreamClosed),
                    ConnectionError(ErrorCode::kStreamClosed),
                    ConnectionError(ErrorCode::kProtocol), Ignored()}});
}

// Half closed: the client said that stream 1 has no more to come.
void AddHalfClosed(MalformedCases& cases) {
  const std::pair<const char*, std::string> added[] = {
      {"DATA", Data(1)},
      {"the end by DATA again", Frame(kData, kEndStream, 1)},
      {"HEADERS", Headers(1)},
      {"trailers", Trailers()}};
  for (const auto& [name, bytes] : added) {
    cases.push_back({.name = absl::StrCat(name, " after END_STREAM"),
                     .section = "5.1",
                     .bytes = WatchCall() + bytes,
                     .expected = {StreamError(ErrorCode::kStreamClosed),
                                  ConnectionError(ErrorCode::kStreamClosed)}});
  }
}

// A stream that has ended: by an answer, or by the client's RST_STREAM. A
// server need not remember it, and may ignore what comes.
void AddClosed(MalformedCases& cases) {
  const std::vector<Outcome> ignored = {Ignored()};
  const std::vector<Outcome> refused = {
      StreamError(ErrorCode::kStreamClosed),
      ConnectionError(ErrorCode::kStreamClosed),
      ConnectionError(ErrorCode::kProtocol), Ignored()};
  const struct {
    const char* name;
    std::string bytes;
    const std::vector<Outcome>& expected;
  } frames[] = {
      {"DATA", Data(1), refused},        {"HEADERS", Headers(1), refused},
      {"trailers", Trailers(), refused}, {"WINDOW_UPDATE", Window(1), ignored},
      {"RST_STREAM", Reset(1), ignored}, {"PRIORITY", Priority(1), ignored}};
  for (const auto& [name, bytes, expected] : frames) {
    cases.push_back({.name = absl::StrCat(name, " after the answer"),
                     .section = "5.1",
                     .bytes = bytes,
                     .expected = expected,
                     .before = GoodCall(1)});
    cases.push_back({.name = absl::StrCat(name, " after RST_STREAM"),
                     .section = "5.1",
                     .bytes = OpenStream() + Reset(1) + bytes,
                     .expected = expected});
  }
  // Were they not unpacked, the tables of both ends would no longer agree, and
  // index 62 would end the connection.
  cases.push_back(
      {.name = "the headers of a closed stream are unpacked",
       .section = "4.3",
       .bytes = Frame(kHeaders, kEndHeaders | kEndStream, 1,
                      "\x40" + PackedText("x-new") + PackedText("y")) +
                Frame(kHeaders, kEndHeaders, 3, GoodHeaders() + "\xbe"),
       .expected = refused,
       .before = GoodCall(1)});
}

}  // namespace

MalformedCases StreamStateCases() {
  MalformedCases cases;
  AddWrongStreams(cases);
  AddIdleStreams(cases);
  AddHalfClosed(cases);
  AddClosed(cases);
  return cases;
}

}  // namespace attnd::testing
