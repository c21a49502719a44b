#include "tests/bench/security/held_streams.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/rpc.h"
#include "tests/integration/streams.h"

namespace attnd::bench {
namespace {

using testing::Frame;
using testing::PackedHeader;

constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kReflection[] =
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

grpc::reflection::v1::ServerReflectionRequest ListServices() {
  grpc::reflection::v1::ServerReflectionRequest request;
  request.set_list_services("");
  return request;
}

// OK: it was answered. A stream ends with what it is a stream of.
template <class Request, class Response>
absl::Status Answered(const std::string& target, const char* path,
                      const Request& request) {
  testing::Stream<Request, Response> stream(testing::Connect(target), path);
  if (stream.Ask(request).has_value()) return absl::OkStatus();
  return stream.End();
}

absl::Status WatchOnce(const std::string& target) {
  return Answered<grpc::health::v1::HealthCheckRequest,
                  grpc::health::v1::HealthCheckResponse>(target, kWatch, {});
}

absl::Status ReflectOnce(const std::string& target) {
  return Answered<grpc::reflection::v1::ServerReflectionRequest,
                  grpc::reflection::v1::ServerReflectionResponse>(
      target, kReflection, ListServices());
}

std::string Calls(const HeldStreams& held) {
  std::string headers;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{
           {":method", "POST"},
           {":scheme", "http"},
           {":path", held.path},
           {":authority", "bench"},
           {"te", "trailers"},
           {"content-type", "application/grpc"}}) {
    absl::StrAppend(&headers, PackedHeader(name, value));
  }
  std::string calls;
  for (int i = 0; i < held.streams; ++i) {
    const auto stream = static_cast<uint32_t>(2 * i + 1);
    absl::StrAppend(
        &calls, Frame(testing::kHeaders, testing::kEndHeaders, stream, headers),
        Frame(testing::kData, held.ends ? testing::kEndStream : 0, stream,
              testing::Prefixed(held.message)));
  }
  return calls;
}

}  // namespace

const std::vector<HeldStreams>& AllHeldStreams() {
  static const auto* const all = new std::vector<HeldStreams>{
      {"2,000 watches", kWatch, "", 2, 1000, true, WatchOnce},
      {"64 streams of reflection", kReflection,
       ListServices().SerializeAsString(), 1, 64, false, ReflectOnce}};
  return *all;
}

std::vector<std::unique_ptr<testing::FloodingPeer>> Hold(
    const HeldStreams& held, const std::string& address,
    const testing::TlsClientOptions* tls) {
  const testing::Flood flood = {held.name, Calls(held),
                                [](uint32_t) { return std::string(); }};
  std::vector<std::unique_ptr<testing::FloodingPeer>> peers;
  for (int i = 0; i < held.connections; ++i) {
    peers.push_back(std::make_unique<testing::FloodingPeer>(address, 2, tls));
    // What comes first is more than this already, so that is all.
    if (peers.back()->Pour(flood, /*most_bytes=*/1)) return {};
    if (peers.back()->sent_bytes() == 0) return {};
  }
  return peers;
}

}  // namespace attnd::bench
