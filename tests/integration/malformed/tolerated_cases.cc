// Unusual, and right by the RFCs: whoever refuses malformed bytes must not
// refuse these.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

MalformedCase Passed(std::string name, std::string section, std::string bytes) {
  return {.name = std::move(name),
          .section = std::move(section),
          .bytes = std::move(bytes),
          .expected = {Ignored()}};
}
MalformedCase Served(std::string name, std::string section, std::string bytes) {
  return {.name = std::move(name),
          .section = std::move(section),
          .bytes = std::move(bytes),
          .expected = {Status(0)}};
}

void AddExtensions(MalformedCases& cases) {
  for (const int type : {0x0a, 0x0c, 0x10, 0x77, 0xff}) {
    for (const uint32_t stream : {0u, 1u, 2u}) {
      cases.push_back(
          Passed(absl::StrCat("a frame of type ", type, " on stream ", stream),
                 "4.1", Frame(type, 0xff, stream, "whatever")));
    }
  }
  for (const int id : {0, 7, 9, 0x0f0f, 0xffff}) {
    cases.push_back(Passed(absl::StrCat("setting ", id), "6.5.2",
                           Frame(kSettings, 0, 0, Setting(id, 0xffffffff))));
  }
  cases.push_back(Served("an unknown frame between HEADERS and DATA", "5.5",
                         OpenStream() + Frame(0x77, 0, 1, "x") +
                             Frame(kData, kEndStream, 1, GoodBody())));
}

constexpr char kFlags[] = "gRPC refuses flags that it does not know";

// Flags that a type does not have, and bits that have no meaning.
void AddUndefinedBits(MalformedCases& cases) {
  cases.push_back(But(
      Passed("SETTINGS with undefined flags", "4.1", Frame(kSettings, 0xfe, 0)),
      Closed(), kFlags));
  cases.push_back(But(Passed("PING with undefined flags", "4.1",
                             Frame(kPing, 0xfe, 0, "12345678")),
                      Closed(), kFlags));
  cases.push_back(But(Passed("WINDOW_UPDATE with undefined flags", "4.1",
                             Frame(kWindowUpdate, 0xff, 0, BigEndian(1, 4))),
                      Closed(), kFlags));
  cases.push_back(Passed("WINDOW_UPDATE with the reserved bit", "6.9",
                         Frame(kWindowUpdate, 0, 0, BigEndian(0x80000001, 4))));
  cases.push_back(
      Passed("RST_STREAM with undefined flags", "4.1",
             OpenStream() + Frame(kReset, 0xff, 1, BigEndian(8, 4))));
  cases.push_back(Passed("RST_STREAM with an unknown error", "7",
                         OpenStream() + Frame(kReset, 0, 1, BigEndian(99, 4))));
  cases.push_back(Passed("an acknowledged PING that nobody sent", "6.7",
                         Frame(kPing, kAck, 0, "12345678")));
  cases.push_back(Served("HEADERS with undefined flags", "4.1",
                         Frame(kHeaders, kEndHeaders | 0xd2, 1, GoodHeaders()) +
                             Frame(kData, kEndStream, 1, GoodBody())));
  cases.push_back(
      But(Served("DATA with undefined flags", "4.1",
                 OpenStream() + Frame(kData, kEndStream | 0xf6, 1, GoodBody())),
          StreamError(ErrorCode::kProtocol), kFlags));
  cases.push_back(
      Served("streams with the reserved bit", "4.1",
             Frame(kHeaders, kEndHeaders, 0x80000001, GoodHeaders()) +
                 Frame(kData, kEndStream, 0x80000001, GoodBody())));
}

void AddFraming(MalformedCases& cases) {
  const std::string block = GoodHeaders();
  const std::string data = Frame(kData, kEndStream, 1, GoodBody());
  const std::string pad(200, '\0');
  std::string bytewise = Frame(kHeaders, 0, 1, block.substr(0, 1));
  for (size_t i = 1; i < block.size(); ++i) {
    bytewise += Frame(kContinuation, i + 1 == block.size() ? kEndHeaders : 0, 1,
                      block.substr(i, 1));
  }
  const MalformedCase added[] = {
      Served("HEADERS in frames of a byte", "6.10", bytewise + data),
      Served("empty HEADERS, then CONTINUATION", "6.10",
             Frame(kHeaders, 0, 1) + Frame(kContinuation, 0, 1) +
                 Frame(kContinuation, kEndHeaders, 1, block) + data),
      But(Served("padded HEADERS", "6.2",
                 Frame(kHeaders, kPadded | kEndHeaders, 1,
                       absl::StrCat("\xc8", block, pad)) +
                     data),
          Closed(), kNoPadding),
      But(Served("HEADERS padded by 0", "6.2",
                 Frame(kHeaders, kPadded | kEndHeaders, 1,
                       std::string(1, '\0') + block) +
                     data),
          Closed(), kNoPadding),
      Served("HEADERS with a priority", "6.2",
             Frame(kHeaders, kHasPriority | kEndHeaders, 1,
                   std::string("\x80\0\0\3\xff", 5) + block) +
                 data),
      But(Served("padded DATA", "6.1",
                 OpenStream() + Frame(kData, kPadded | kEndStream, 1,
                                      absl::StrCat("\xc8", GoodBody(), pad))),
          StreamError(ErrorCode::kProtocol), kNoPadding),
      But(Served("DATA of padding alone", "6.1",
                 OpenStream() + Frame(kData, kPadded, 1, "\xc8" + pad) + data),
          StreamError(ErrorCode::kProtocol), kNoPadding),
      Served("a hundred empty DATA", "6.1",
             OpenStream() + Repeated(Frame(kData, 0, 1), 100) + data),
      Served("the end in an empty DATA", "6.1",
             OpenStream() + Frame(kData, 0, 1, GoodBody()) +
                 Frame(kData, kEndStream, 1)),
      Served("the end in trailers", "8.1",
             OpenStream() + Frame(kData, 0, 1, GoodBody()) +
                 Frame(kHeaders, kEndHeaders | kEndStream, 1,
                       PackedHeader("x-more", "y"))),
      Served("streams that are skipped", "5.1.1", GoodCall(1) + GoodCall(501)),
      Passed("PRIORITY of an idle stream", "5.1",
             Frame(kPriority, 0, 7, std::string(5, '\1'))),
      Passed("PRIORITY of an idle even stream", "5.1",
             Frame(kPriority, 0, 8, std::string(5, '\1'))),
      Passed("a stream that has priority over itself", "5.3.2",
             Frame(kPriority, 0, 7, BigEndian(7, 4) + "\1")),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
}

void AddPacking(MalformedCases& cases) {
  const std::string block = GoodHeaders();
  const std::pair<const char*, std::string> blocks[] = {
      {"a header by Huffman", block + "\x10" + PackedText("x-a") + "\x81\x1f"},
      {"an empty value", block + PackedHeader("x-a", "")},
      {"an entry of the dynamic table",
       block + "\x40" + PackedText("x-a") + PackedText("y") + "\xbe"},
      {"an entry that is larger than the table",
       block + "\x40" + PackedText("x-a") + PackedText(std::string(5000, 'y'))},
      {"two sizes of the table", "\x20\x3f\xe1\x1f" + block},
      {"an integer in more bytes than it needs",
       block + std::string("\x10\3x-a\x7f\x80\x00", 8) + std::string(127, 'y')},
      {"cookies in parts",
       block + PackedHeader("cookie", "a=b") + PackedHeader("cookie", "c=d")},
      {"indexed :method and :scheme",
       "\x83\x86" + GoodHeaders({{":method", kNone}, {":scheme", kNone}})}};
  for (const auto& [name, bytes] : blocks) {
    cases.push_back(Served(name, "HPACK", CallWithBlock(bytes)));
  }
}

void AddGrpc(MalformedCases& cases) {
  const std::pair<const char*, HeaderList> changes[] = {
      {"no :authority, but host", {{":authority", kNone}, {"host", "test"}}},
      {"scheme https without TLS", {{":scheme", "https"}}},
      {"content-type with a subtype",
       {{"content-type", "application/grpc+proto"}}},
      {"content-type with a parameter",
       {{"content-type", "application/grpc;a=b"}}},
      {"grpc-timeout of 8 digits", {{"grpc-timeout", "99999999H"}}},
      {"grpc-encoding identity", {{"grpc-encoding", "identity"}}},
      {"unknown encodings that are accepted",
       {{"grpc-accept-encoding", "x,,y"}}},
      {"x-a-bin with padding", {{"x-a-bin", "YQ=="}}},
      {"x-a-bin without padding", {{"x-a-bin", "YQ"}}},
      {"an empty x-a-bin", {{"x-a-bin", ""}}}};
  for (const auto& [name, list] : changes) {
    cases.push_back(Served(name, "gRPC", GoodCall(1, list)));
  }
  const std::string body = GoodBody();
  std::string bytewise = OpenStream();
  for (int i = 0; i < 10; ++i)
    bytewise += Frame(kData, 0, 1, body.substr(i, 1));
  cases.push_back(
      Served("a prefix in frames of a byte", "gRPC",
             bytewise + Frame(kData, kEndStream, 1, body.substr(10))));
}

}  // namespace

MalformedCases ToleratedCases() {
  MalformedCases cases;
  AddExtensions(cases);
  AddUndefinedBits(cases);
  AddFraming(cases);
  AddPacking(cases);
  AddGrpc(cases);
  return cases;
}

}  // namespace attnd::testing
