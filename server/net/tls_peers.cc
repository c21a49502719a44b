#include "server/net/tls_peers.h"

#include <sys/socket.h>

#include <utility>

#include "base/guard/system_calls.h"
#include "server/net/peer_address.h"
#include "server/tls/certificate_name.h"

namespace attnd::server {

TlsPeers::Entry::~Entry() {
  MutexLock lock(peers_->mutex_);
  peers_->peers_.erase(address_);
}

std::unique_ptr<TlsPeers::Entry> TlsPeers::Add(int fd, TlsStream& stream) {
  std::string address = PeerAddress(fd);
  if (address.empty()) return nullptr;
  Peer peer;
  peer.fd = fd;
  peer.stream = &stream;
  X509* const certificate = stream.peer_certificate();
  STACK_OF(X509)* const chain = stream.peer_chain();
  if (certificate != nullptr && X509_up_ref(certificate) == 1) {
    peer.certificate = X509Ptr(certificate);
    peer.name = tls::NameOf(certificate);
    if (chain != nullptr) peer.chain.reset(X509_chain_up_ref(chain));
  }
  MutexLock lock(mutex_);
  if (!peers_.try_emplace(address, std::move(peer)).second) return nullptr;
  return std::make_unique<Entry>(shared_from_this(), std::move(address));
}

std::string TlsPeers::NameOf(absl::string_view address) const {
  MutexLock lock(mutex_);
  const auto at = peers_.find(address);
  return at == peers_.end() ? "" : at->second.name;
}

// A descriptor stays open while its peer is known here, which is until this
// lets go of the lock.
template <typename IsOver>
int TlsPeers::EndWhere(const IsOver& is_over) {
  MutexLock lock(mutex_);
  int ended = 0;
  for (const auto& [address, peer] : peers_) {
    if (!is_over(peer)) continue;
    system_calls::Shutdown(peer.fd, SHUT_RDWR);
    ++ended;
  }
  return ended;
}

int TlsPeers::EndUnknown(const tls::Credentials& credentials) {
  return EndWhere([&credentials](const Peer& peer) {
    return !credentials.Admits(peer.certificate.get(), peer.chain.get());
  });
}

int TlsPeers::EndExpired() {
  return EndWhere([](const Peer& peer) {
    return peer.certificate != nullptr &&
           X509_cmp_current_time(X509_get0_notAfter(peer.certificate.get())) <
               0;
  });
}

// As with descriptors: a stream lives until its entry has gone.
void TlsPeers::SayGoodbye() {
  MutexLock lock(mutex_);
  for (const auto& [address, peer] : peers_) peer.stream->SayGoodbye();
}

}  // namespace attnd::server
