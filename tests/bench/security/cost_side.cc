#include "tests/bench/security/cost_side.h"

#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attnd/tls_guard.h"
#include "tests/bench/attnd_peer.h"
#include "tests/bench/clock.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

constexpr size_t kSmallBytes = 64 * sizeof(float);

}  // namespace

Running::Running(const Side& side, const Credentials& credentials) {
  std::vector<std::string> flags = {absl::StrCat("--serve=", side.role)};
  if (side.has_front) {
    flags.push_back(absl::StrCat("--unix_socket=", folder_.File("socket")));
  } else {
    for (std::string& flag : credentials.ServerFlags(side.way)) {
      flags.push_back(std::move(flag));
    }
  }
  server_.emplace(flags, side.program);
  std::string target = server_->target();
  if (side.has_front) {
    front_ = Get(testing::Haproxy::Start(
        folder_.File("socket"),
        side.way == Way::kClear ? "" : credentials.ServerBundle()));
    target = front_->target();
  }
  if (side.role == kEcho) {
    exchange_ = side.way == Way::kClear
                    ? ConnectRawEcho(target)
                    : ConnectRawEchoByTls(target, credentials.ca());
    return;
  }
  if (!client::UseTlsGuard(!side.grpc_tls)) {
    Require(absl::UnavailableError("TLS under gRPC cannot be used"));
  }
  client::ClientOptions options;
  options.tls = credentials.Client(side.way);
  exchange_ = ConnectAttnd(target, options, side.transport);
  smallest_.emplace(target, options);
}

void Running::Call(const Exchange& exchange, Side* side) {
  const double client_s = CpuSecondsOf(getpid());
  const double server_s = ServerCpuSeconds();
  const double seconds = Time([&] { exchange_(exchange); });
  if (side == nullptr) return;
  side->ms.push_back(seconds * 1e3);
  side->client_s += CpuSecondsOf(getpid()) - client_s;
  side->server_s += ServerCpuSeconds() - server_s;
}

double Running::ServerCpuSeconds() const {
  return server_->CpuSeconds() +
         (front_ != nullptr ? CpuSecondsOf(front_->pid()) : 0);
}

void Running::CallSmall() {
  if (smallest_.has_value()) return Require(smallest_->Call());
  float in[kSmallBytes / sizeof(float)] = {}, out[std::size(in)];
  const auto* const bytes = reinterpret_cast<const std::byte*>(in);
  exchange_(
      {{bytes, bytes, bytes}, reinterpret_cast<std::byte*>(out), kSmallBytes});
}

}  // namespace attnd::bench
