#include "server/identity/peer.h"

#include "absl/strings/match.h"

namespace attnd::server {

std::string ClientOf(absl::string_view peer) {
  if (absl::StartsWith(peer, "unix")) return "unix";
  const size_t colon = peer.rfind(':');
  return std::string(colon == absl::string_view::npos ? peer
                                                      : peer.substr(0, colon));
}

}  // namespace attnd::server
