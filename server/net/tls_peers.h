#ifndef ATTND_SERVER_NET_TLS_PEERS_H_
#define ATTND_SERVER_NET_TLS_PEERS_H_

// Who is at the other end of the connections that are encrypted.

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/tls/openssl.h"
#include "base/tls/tls_stream.h"
#include "server/tls/credentials.h"

namespace attnd::server {

// Thread-safe, and a std::shared_ptr's. Knows clients' certificates by how gRPC
// spells their addresses, as gRPC says no more of a connection that it was
// given.
class TlsPeers : public std::enable_shared_from_this<TlsPeers> {
 public:
  // One of them, for as long as it lives: no longer than its descriptor is
  // open.
  class Entry {
   public:
    Entry(std::shared_ptr<TlsPeers> peers, std::string address)
        : peers_(std::move(peers)), address_(std::move(address)) {}
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    const std::shared_ptr<TlsPeers> peers_;
    const std::string address_;
  };

  // The peer of the connected socket `fd`, with which `stream` has shaken
  // hands; that lives for longer than the entry. Null: it is not connected any
  // more, or there is one with the same address and port, by another of the
  // server's own addresses, from which it could not be told.
  std::unique_ptr<Entry> Add(int fd, TlsStream& stream);

  // The name in the certificate of the peer that gRPC calls `address`
  // ("ipv4:10.0.0.7:5123"); empty: it has shown none.
  std::string NameOf(absl::string_view address) const;

  // Ends connections whose peers `credentials` would not admit any more; how
  // many those are.
  int EndUnknown(const tls::Credentials& credentials);
  // The same of those whose certificates have expired.
  int EndExpired();
  // Tells all of them that nothing more is sent.
  void SayGoodbye();

 private:
  struct Peer {
    int fd = -1;
    TlsStream* stream = nullptr;
    std::string name;
    X509Ptr certificate;
    ChainPtr chain;
  };
  template <typename IsOver>
  int EndWhere(const IsOver& is_over);

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Peer> peers_  // by address
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_TLS_PEERS_H_
