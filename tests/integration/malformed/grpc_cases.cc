// Good HTTP/2, and what gRPC's protocol forbids.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/tables.h"

namespace attnd::testing {
namespace {

// Codes of gRPC.
constexpr uint32_t kOk = 0;
constexpr uint32_t kUnknownError = 2;
constexpr uint32_t kInvalidArgument = 3;
constexpr uint32_t kResourceExhausted = 8;
constexpr uint32_t kUnimplemented = 12;
constexpr uint32_t kInternal = 13;

MalformedCase Of(std::string name, std::string bytes,
                 std::vector<Outcome> expected) {
  return {.name = std::move(name),
          .section = "gRPC",
          .bytes = std::move(bytes),
          .expected = std::move(expected)};
}
// What gRPC's protocol gives no code for, but a server should not serve.
MalformedCase Refused(std::string name, std::string bytes) {
  return Of(
      std::move(name), std::move(bytes),
      {Status(kInternal), Status(kInvalidArgument), Status(kUnimplemented),
       Http(400), StreamError(ErrorCode::kProtocol)});
}

void AddContentTypes(MalformedCases& cases) {
  for (const std::string type :
       {"", "text/plain", "application/json", "application/grp",
        "application/grpcx", "application/x-protobuf", kNone}) {
    cases.push_back(
        But(Of(absl::StrCat("content-type ", type == kNone ? "none" : type),
               GoodCall(1, {{"content-type", type}}), {Http(415)}),
            Status(kOk), "gRPC takes any content-type for its own"));
  }
}

void AddRequests(MalformedCases& cases) {
  for (const std::string method : {"GET", "PUT", "DELETE", "post", "PRI"}) {
    cases.push_back(But(Refused(absl::StrCat("method ", method),
                                GoodCall(1, {{":method", method}})),
                        Status(kUnknownError), kUnknown));
  }
  cases.push_back(But(Refused("no te", GoodCall(1, {{"te", kNone}})),
                      Status(kUnknownError), kUnknown));
  for (const std::string path :
       {"/", "//", "/attn.v1.AttentionService", "/attn.v1.AttentionService/",
        "/attn.v1.AttentionService/forward",
        "/attn.v1.AttentionService/Forward/",
        "/attn.v1.AttentionService/Forward?a=b", "/AttentionService/Forward",
        "/attn.v1.AttentionService/%46orward",
        "/../attn.v1.AttentionService/Forward"}) {
    cases.push_back(Of(absl::StrCat("path ", path),
                       GoodCall(1, {{":path", path}}),
                       {Status(kUnimplemented), Http(404)}));
  }
  cases.push_back(Of("a path of 10,000 bytes",
                     GoodCall(1, {{":path", "/" + std::string(9999, 'a')}}),
                     {Status(kUnimplemented), Http(404)}));
}

// A timeout is a decimal number of up to 8 digits, and H, M, S, m, u or n.
void AddTimeouts(MalformedCases& cases) {
  for (const std::string timeout :
       {"", "1", "S", "1s", "1X", "1SS", "-1S", "+1S", "1.5S", "0x1S", "1e2S",
        "100000000S", "99999999999999999999S", "18446744073709551617S", "1 S x",
        "one S", "infinity"}) {
    cases.push_back(But(Refused(absl::StrCat("grpc-timeout \"", timeout, "\""),
                                GoodCall(1, {{"grpc-timeout", timeout}})),
                        Status(kOk),
                        "gRPC takes a timeout that it cannot read for none"));
  }
}

void AddMetadata(MalformedCases& cases) {
  for (const std::string value : {"!!!!", "a", "a===", "YQ=x", "YQ==YQ=="}) {
    cases.push_back(
        But(Refused(absl::StrCat("x-a-bin of \"", value, "\""),
                    GoodCall(1, {{"x-a-bin", value}})),
            Closed(),
            "gRPC ends the connection for what is not base64, all of its calls "
            "with it"));
  }
  for (const std::string bytes :
       {"", "x", "-1", "1.5", "99999999999999999999"}) {
    cases.push_back(Of(absl::StrCat("attnd-request-bytes \"", bytes, "\""),
                       GoodCall(1, {{"attnd-request-bytes", bytes}}),
                       {Status(kInvalidArgument)}));
  }
  const std::string block =
      GoodHeaders({{"x-large", std::string(15000, 'a')},
                   {"x-larger", std::string(15000, 'b')}});
  cases.push_back(
      But(Of("metadata beyond --max_metadata",
             Frame(kHeaders, 0, 1, block.substr(0, kMaxFrame)) +
                 Frame(kContinuation, kEndHeaders, 1, block.substr(kMaxFrame)) +
                 Frame(kData, kEndStream, 1, GoodBody()),
             {Status(kResourceExhausted), Http(431)}),
          ConnectionError(ErrorCode::kEnhanceYourCalm),
          "gRPC counts metadata frame by frame, so attnd ends connections for "
          "what several frames bring too much"));
}

void AddEncodings(MalformedCases& cases) {
  const std::string compressed = "\1" + GoodBody().substr(1);
  const auto compressed_by = [&](const std::string& encoding) {
    return Frame(kHeaders, kEndHeaders, 1,
                 GoodHeaders({{"grpc-encoding", encoding}})) +
           Frame(kData, kEndStream, 1, compressed);
  };
  constexpr char kTakenForNone[] =
      "gRPC takes a compression that it does not know for none";
  for (const std::string encoding : {"gzip", "deflate"}) {
    cases.push_back(Of("compressed by " + encoding, compressed_by(encoding),
                       {Status(kUnimplemented)}));
  }
  for (const std::string encoding : {"no-such", "", "GZIP", "gzip, deflate"}) {
    cases.push_back(But(Of(absl::StrCat("compressed by \"", encoding, "\""),
                           compressed_by(encoding), {Status(kUnimplemented)}),
                        Status(kOk), kTakenForNone));
    // Nothing is compressed, so nothing must be understood.
    cases.push_back(Of(absl::StrCat("not compressed, by \"", encoding, "\""),
                       GoodCall(1, {{"grpc-encoding", encoding}}),
                       {Status(kUnimplemented), Status(kOk)}));
  }
  cases.push_back(But(Of("a compressed message without an encoding",
                         CallWithBody(compressed), {Status(kInternal)}),
                      Status(kOk), kTakenForNone));
  for (const char flags : {'\2', '\3', '\x80', '\xff'}) {
    cases.push_back(Refused(
        absl::StrCat("a prefix with flags ", static_cast<uint8_t>(flags)),
        CallWithBody(std::string(1, flags) + GoodBody().substr(1))));
  }
}

void AddTruncated(MalformedCases& cases) {
  const std::string good = GoodBody();
  for (const int size : {1, 4, 5, 6}) {
    cases.push_back(Refused(
        absl::StrCat("a prefix and message that end after ", size, " bytes"),
        CallWithBody(good.substr(0, size))));
  }
  cases.push_back(Refused("a message less its last byte",
                          CallWithBody(good.substr(0, good.size() - 1))));
  cases.push_back(Refused("a message that trailers cut short",
                          OpenStream() +
                              Frame(kData, 0, 1, good.substr(0, 50)) +
                              Frame(kHeaders, kEndHeaders | kEndStream, 1,
                                    PackedHeader("x-more", "y"))));
  for (const uint32_t length : {0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    cases.push_back(Refused(
        absl::StrCat("a message of ", length, " bytes that ends after one"),
        CallWithBody(
            absl::StrCat(BigEndian(0, 1), BigEndian(length, 4), "x"))));
  }
}

void AddMessages(MalformedCases& cases) {
  const std::string good = GoodBody();
  // A call of one message that has none, or two.
  const std::vector<Outcome> cardinality = {Status(kUnimplemented)};
  const std::pair<const char*, std::string> none[] = {
      {"no message",
       Frame(kHeaders, kEndHeaders | kEndStream, 1, GoodHeaders())},
      {"no message but an empty DATA", CallWithBody("")}};
  for (const auto& [name, bytes] : none) {
    cases.push_back(But(Of(name, bytes, cardinality), Status(kInvalidArgument),
                        "attnd calls a message that is not there invalid"));
  }
  const std::pair<const char*, std::string> more[] = {
      {"two messages", good},
      {"a message and half another", good.substr(0, 50)},
      {"a message and a byte", "x"}};
  for (const auto& [name, bytes] : more) {
    cases.push_back(But(Of(name, CallWithBody(good + bytes), cardinality),
                        Status(kOk),
                        "attnd does not look beyond a call's first message"));
  }
  cases.push_back(Of("a message that is no protobuf",
                     CallWithBody(Prefixed(std::string(64, '\xff'))),
                     {Status(kInvalidArgument)}));
  cases.push_back(Of("an empty message", CallWithBody(Prefixed("")),
                     {Status(kInvalidArgument)}));
}

}  // namespace

MalformedCases GrpcCases() {
  MalformedCases cases;
  AddContentTypes(cases);
  AddRequests(cases);
  AddTimeouts(cases);
  AddMetadata(cases);
  AddEncodings(cases);
  AddTruncated(cases);
  AddMessages(cases);
  return cases;
}

}  // namespace attnd::testing
