#include "client/tls_sockets.h"

#include <atomic>

namespace attnd::client {
namespace {

std::atomic<TlsSocketsMaker> asked{nullptr};

}  // namespace

void SetTlsSocketsMaker(TlsSocketsMaker maker) { asked.store(maker); }

std::shared_ptr<TlsSockets> MakeTlsSockets(const std::string& target,
                                           const Credentials::Tls& tls,
                                           const std::string& server_name) {
  const TlsSocketsMaker maker = asked.load();
  return maker == nullptr ? nullptr : maker(target, tls, server_name);
}

}  // namespace attnd::client
