// Requests whose headers unpack, and are malformed (RFC 9113, section 8): an
// error of the stream, before which HTTP may say 400.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

constexpr char kUnknownMethod[] =
    "gRPC answers UNIMPLEMENTED whatever is wrong with a path";
constexpr char kNoRules[] =
    "gRPC applies no rules of HTTP to headers that it does not need";

MalformedCase Of(std::string name, std::string section, std::string bytes) {
  return {.name = std::move(name),
          .section = std::move(section),
          .bytes = std::move(bytes),
          .expected = {StreamError(ErrorCode::kProtocol), Http(400),
                       ConnectionError(ErrorCode::kProtocol)},
          .differs = Status(0),
          .why = kNoRules};
}
MalformedCase With(std::string name, std::string section,
                   const HeaderList& changes) {
  return Of(std::move(name), std::move(section), GoodCall(1, changes));
}
MalformedCase Block(std::string name, std::string section,
                    const std::string& block) {
  return Of(std::move(name), std::move(section), CallWithBlock(block));
}

void AddConnectionHeaders(MalformedCases& cases) {
  for (const std::string name : {"connection", "keep-alive", "proxy-connection",
                                 "transfer-encoding", "upgrade"}) {
    cases.push_back(
        With(absl::StrCat("the header ", name), "8.2.2",
             {{name, name == "transfer-encoding" ? "chunked" : "x"}}));
  }
  for (const std::string te : {"gzip", "trailers, gzip", ""}) {
    cases.push_back(
        But(With(absl::StrCat("te of \"", te, "\""), "8.2.2", {{"te", te}}),
            Status(2), kUnknown));
  }
}

void AddCharacters(MalformedCases& cases) {
  const std::pair<const char*, std::string> names[] = {
      {"upper case", "X-Upper"},    {"a space", "x a"},
      {"a colon", "x:a"},           {"NUL", std::string("x\0a", 3)},
      {"a newline", "x\na"},        {"DEL", "x\177a"},
      {"a byte above 127", "x\xe9"}};
  for (const auto& [what, name] : names) {
    cases.push_back(
        With(absl::StrCat("a name with ", what), "8.2.1", {{name, "y"}}));
  }
  cases.push_back(With("an empty name", "8.2.1", {{"", "y"}}));
  const std::pair<const char*, std::string> values[] = {
      {"NUL in a value", std::string("a\0b", 3)},
      {"CR in a value", "a\rb"},
      {"LF in a value", "a\nb"},
      {"a header within a value", "a\r\nx-b: c"},
      {"a space before a value", " a"},
      {"a space after a value", "a "},
      {"a tab before a value", "\ta"}};
  for (const auto& [what, value] : values) {
    cases.push_back(With(what, "8.2.1", {{"x-a", value}}));
  }
  cases.push_back(But(With("NUL in :path", "8.2.1",
                           {{":path", kForwardPath + std::string("\0x", 2)}}),
                      Status(12), kUnknownMethod));
  cases.push_back(With("LF in :authority", "8.2.1", {{":authority", "a\nb"}}));
}

// What content-length says is not what comes.
void AddContentLengths(MalformedCases& cases) {
  const std::pair<const char*, std::string> lengths[] = {
      {"less than comes", "1"},
      {"more than comes", "1000000"},
      {"0", "0"},
      {"no number", "many"},
      {"negative", "-1"},
      {"above 2^64", "99999999999999999999"},
      {"empty", ""}};
  for (const auto& [what, value] : lengths) {
    cases.push_back(With(absl::StrCat("a content-length that is ", what),
                         "8.1.1", {{"content-length", value}}));
  }
  cases.push_back(Block("two content-lengths that differ", "8.1.1",
                        GoodHeaders({{"content-length", "1"}}) +
                            PackedHeader("content-length", "2")));
}

}  // namespace

MalformedCases PseudoHeaderCases() {
  const std::string good = GoodHeaders();
  const auto unknown = [](MalformedCase c) {
    return But(std::move(c), Status(2), kUnknown);
  };
  const auto method = [](MalformedCase c) {
    return But(std::move(c), Status(12), kUnknownMethod);
  };
  MalformedCases cases;
  for (const std::string name : {":method", ":scheme", ":path"}) {
    cases.push_back(
        unknown(With(absl::StrCat("no ", name), "8.3.1", {{name, kNone}})));
  }
  const std::pair<std::string, std::string> twice[] = {{":method", "POST"},
                                                       {":scheme", "http"},
                                                       {":path", kForwardPath},
                                                       {":authority", "test"}};
  for (const auto& [name, value] : twice) {
    const std::string header = PackedHeader(name, value);
    cases.push_back(Block(name + " twice", "8.3", header + good));
    cases.push_back(Block(name + " after a regular header", "8.3",
                          GoodHeaders({{name, kNone}}) + header));
  }
  const MalformedCase added[] = {
      unknown(With("an empty :method", "8.3.1", {{":method", ""}})),
      unknown(With("an empty :scheme", "8.3.1", {{":scheme", ""}})),
      method(With("an empty :path", "8.3.1", {{":path", ""}})),
      Block(":path twice, unlike", "8.3", PackedHeader(":path", "/a/b") + good),
      unknown(Block("no header at all", "8.3.1", "")),
      unknown(Block("regular headers only", "8.3.1",
                    PackedHeader("te", "trailers") +
                        PackedHeader("content-type", "application/grpc"))),
      With("an unknown pseudo header", "8.3", {{":foo", "bar"}}),
      With("a pseudo header without a name", "8.3", {{":", "bar"}}),
      With(":status in a request", "8.3", {{":status", "200"}}),
      With(":protocol without CONNECT", "8.3", {{":protocol", "websocket"}}),
      method(With("a path without a slash", "8.3.1",
                  {{":path", "attn.v1.AttentionService/Forward"}})),
      method(With("a whole URI as path", "8.3.1",
                  {{":path", absl::StrCat("http://test", kForwardPath)}})),
      method(With("a path with a space", "8.3.1",
                  {{":path", absl::StrCat(kForwardPath, " HTTP/1.1")}})),
      unknown(With("a method with a space", "8.3.1", {{":method", "PO ST"}})),
      unknown(With("CONNECT with a path", "8.5", {{":method", "CONNECT"}})),
      With("user and password in :authority", "8.3.1",
           {{":authority", "user:password@test"}}),
      With("host unlike :authority", "8.3.1", {{"host", "other"}}),
  };
  cases.insert(cases.end(), std::begin(added), std::end(added));
  return cases;
}

MalformedCases HeaderCases() {
  MalformedCases cases;
  AddConnectionHeaders(cases);
  AddCharacters(cases);
  AddContentLengths(cases);
  return cases;
}

}  // namespace attnd::testing
