#ifndef ATTND_TESTS_BENCH_SECURITY_WAY_H_
#define ATTND_TESTS_BENCH_SECURITY_WAY_H_

// How a server is reached by TCP, and what either end needs for it.

#include <optional>
#include <string>
#include <vector>

#include "attnd/client.h"
#include "tests/certificates.h"
#include "tests/temp_folder.h"
#include "tests/tls_client.h"

namespace attnd::bench {

enum class Way { kClear, kTls, kMutualTls };
inline constexpr Way kWays[] = {Way::kClear, Way::kTls, Way::kMutualTls};

// "clear", "TLS", "mutual TLS".
const char* NameOf(Way way);

// An authority, and what it signed for a server on loopback, for a client, and
// for another client, which floods.
class Credentials {
 public:
  Credentials();

  // The flags of attnd.
  std::vector<std::string> ServerFlags(Way way) const;
  // Of the client library.
  client::TlsOptions Client(Way way) const;
  // Of a peer that sends what no library would, by mutual TLS with a
  // certificate of its own. None: it speaks in clear.
  std::optional<testing::TlsClientOptions> Peer(Way way) const;

  // PEM, for servers that are not attnd.
  const testing::Identity& server() const { return server_; }
  const std::string& ca() const { return authority_.chain; }
  // A file with the server's certificate and its key, as HAProxy wants both.
  std::string ServerBundle() const { return folder_.File("bundle.pem"); }

 private:
  const testing::TempFolder folder_;
  const testing::Identity authority_, server_, client_, flooder_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_WAY_H_
