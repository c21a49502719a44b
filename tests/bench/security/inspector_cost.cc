#include "tests/bench/security/inspector_cost.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "server/http2/inspector.h"
#include "tests/bench/clock.h"
#include "tests/bench/require.h"
#include "tests/bench/stats.h"
#include "tests/integration/http2_bytes.h"

namespace attnd::bench {
namespace {

using server::http2::Bytes;
using server::http2::Inspector;
using testing::Frame;

constexpr int kBatches = 200;
constexpr int kCallsPerBatch = 500;
constexpr int kMiBPerBatch = 16;
constexpr size_t kFrames = (size_t{1} << 20) / testing::kMaxFrame;

Bytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void Receive(Inspector& inspector, absl::string_view bytes) {
  const auto violation = inspector.Received(BytesOf(bytes), MonotonicNow());
  if (violation.has_value()) {
    Require(absl::InternalError(absl::StrCat("inspector: ", violation->what)));
  }
}

void Send(Inspector& inspector, absl::string_view bytes) {
  inspector.Sent(BytesOf(bytes), MonotonicNow());
}

// Both ends' SETTINGS have been exchanged.
Inspector Greeted() {
  Inspector inspector{server::http2::InspectorOptions()};
  Send(inspector, Frame(testing::kSettings, 0, 0));
  Receive(inspector,
          absl::StrCat(testing::kPreface, Frame(testing::kSettings, 0, 0),
                       Frame(testing::kSettings, testing::kAck, 0)));
  return inspector;
}

std::string HeadersOfACall() {
  std::string block;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{
           {":method", "POST"},
           {":scheme", "http"},
           {":path", "/attn.v1.AttentionService/Forward"},
           {":authority", "127.0.0.1:7411"},
           {"te", "trailers"},
           {"content-type", "application/grpc"},
           {"user-agent", "grpc-c++/1.51.1 grpc-c/29.0.0 (linux; chttp2)"},
           {"grpc-accept-encoding", "identity, deflate, gzip"},
           {"grpc-timeout", "5S"}}) {
    absl::StrAppend(&block, testing::PackedHeader(name, value));
  }
  return block;
}

// What either end says in the smallest forward, as gRPC writes it.
struct CallBytes {
  std::string request, response, acknowledged;

  explicit CallBytes(uint32_t stream, const std::string& headers)
      : request(absl::StrCat(
            Frame(testing::kHeaders, testing::kEndHeaders, stream, headers),
            Frame(testing::kData, testing::kEndStream, stream,
                  testing::Prefixed(std::string(820, 'q'))))),
        response(absl::StrCat(
            Frame(testing::kHeaders, testing::kEndHeaders, stream,
                  std::string(4, '\x88')),
            Frame(testing::kData, 0, stream,
                  testing::Prefixed(std::string(350, 'o'))),
            Frame(testing::kHeaders, testing::kEndHeaders | testing::kEndStream,
                  stream, std::string(4, '\x88')))),
        acknowledged(
            Frame(testing::kWindowUpdate, 0, 0, testing::BigEndian(355, 4))) {}
};

double NsOfACall() {
  const std::string headers = HeadersOfACall();
  std::vector<double> ns;
  for (int batch = 0; batch < kBatches; ++batch) {
    Inspector inspector = Greeted();
    std::vector<CallBytes> calls;
    for (int i = 0; i < kCallsPerBatch; ++i) {
      calls.emplace_back(static_cast<uint32_t>(2 * i + 1), headers);
    }
    const double seconds = Time([&] {
      for (const CallBytes& call : calls) {
        Receive(inspector, call.request);
        Send(inspector, call.response);
        Receive(inspector, call.acknowledged);
      }
    });
    ns.push_back(seconds * 1e9 / kCallsPerBatch);
  }
  return Median(std::move(ns));
}

// `pass` is given the bytes of a MiB, whatever end has sent them.
template <typename Pass>
double NsOfAMib(Pass pass) {
  std::string mib;
  for (size_t i = 0; i < kFrames; ++i) {
    mib += Frame(testing::kData, 0, 1, std::string(testing::kMaxFrame, 'x'));
  }
  std::vector<double> ns;
  for (int batch = 0; batch < kBatches; ++batch) {
    Inspector inspector = Greeted();
    Receive(inspector, Frame(testing::kHeaders, testing::kEndHeaders, 1,
                             HeadersOfACall()));
    const double seconds = Time([&] {
      for (int i = 0; i < kMiBPerBatch; ++i) pass(inspector, mib);
    });
    ns.push_back(seconds * 1e9 / kMiBPerBatch);
  }
  return Median(std::move(ns));
}

}  // namespace

InspectorCost MeasureInspector() {
  return {NsOfACall(), NsOfAMib(Receive), NsOfAMib(Send)};
}

}  // namespace attnd::bench
