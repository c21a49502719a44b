#include "tests/integration/malformed/requests.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {

std::string GoodHeaders(const HeaderList& changes) {
  HeaderList headers = CallHeaders(kForwardPath);
  HeaderList added_first;
  HeaderList added;
  for (const auto& [name, value] : changes) {
    const auto same = std::find_if(
        headers.begin(), headers.end(),
        [&name = name](const auto& header) { return header.first == name; });
    if (same == headers.end()) {
      (name.starts_with(':') ? added_first : added).emplace_back(name, value);
    } else {
      same->second = value;
    }
  }
  std::erase_if(headers, [](const auto& one) { return one.second == kNone; });
  return PackedHeaders(added_first) + PackedHeaders(headers) +
         PackedHeaders(added);
}

std::string GoodBody() {
  // The same each time.
  static const auto* const message =
      new std::string(server::GoodForward().SerializeAsString());
  return Prefixed(*message);
}

std::string GoodCall(uint32_t stream, const HeaderList& changes) {
  return absl::StrCat(
      Frame(kHeaders, kEndHeaders, stream, GoodHeaders(changes)),
      Frame(kData, kEndStream, stream, GoodBody()));
}

std::string OpenStream() {
  return Frame(kHeaders, kEndHeaders, 1, GoodHeaders());
}

std::string CallWithBody(const std::string& body) {
  return absl::StrCat(OpenStream(), Frame(kData, kEndStream, 1, body));
}

std::string CallWithBlock(const std::string& block) {
  return absl::StrCat(Frame(kHeaders, kEndHeaders, 1, block),
                      Frame(kData, kEndStream, 1, GoodBody()));
}

std::string WatchCall() {
  const std::string block =
      GoodHeaders({{":path", "/grpc.health.v1.Health/Watch"}});
  return absl::StrCat(Frame(kHeaders, kEndHeaders, 1, block),
                      Frame(kData, kEndStream, 1, Prefixed("")));
}

}  // namespace attnd::testing
