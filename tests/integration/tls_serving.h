#ifndef ATTND_TESTS_INTEGRATION_TLS_SERVING_H_
#define ATTND_TESTS_INTEGRATION_TLS_SERVING_H_

// attnd with TLS in a process of its own, and who calls it.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attnd/client.h"
#include "base/descriptor.h"
#include "tests/certificates.h"
#include "tests/integration/process.h"
#include "tests/temp_folder.h"
#include "tests/tls_client.h"

namespace attnd::testing {

// A client's end of a connection, down to the frames that TLS carries. Blocks
// for kHangLimit at most.
class TlsPeer {
 public:
  // Connects to "host:port" on loopback. Says nothing yet.
  TlsPeer(const std::string& address, const TlsClientOptions& options);

  bool Handshake() { return tls_.Handshake(); }
  // Whether the server speaks HTTP/2 with it: once the handshake is done and it
  // has said its own first words, something comes.
  bool IsServed();
  bool Send(const std::string& bytes) { return tls_.Send(bytes); }
  // Some of what comes; empty: the connection has ended.
  std::string Receive() { return tls_.Receive(); }
  // Drops what comes until the connection ends.
  void ReceiveToTheEnd();
  const TlsClient& tls() const { return tls_; }
  int fd() const { return socket_.get(); }

 private:
  const Descriptor socket_;
  TlsClient tls_;
};

// What a client sends first of all to a server of TLS.
std::string ClientHello();

class TlsServingTest : public ::testing::Test {
 protected:
  TlsServingTest();

  // attnd with the pair in "server.pem" and "server.key".
  void Start(std::vector<std::string> flags = {});
  // The same, for clients only whom "client_ca.pem" knows.
  void StartMutual(std::vector<std::string> flags = {});

  // A certificate of the server for where it listens.
  Identity ForServer() const {
    return Issue(authority_, {.dns = {"localhost"}, .ips = {"127.0.0.1"}});
  }
  Identity ForClient(const std::string& name) const {
    return Issue(client_authority_, {.common_name = name});
  }

  // A client that trusts the server, and shows `own` if there is one. It tries
  // once: what one attempt says is what a test wants to know.
  client::ClientOptions Trusting(const Identity& own = {}) const;
  std::unique_ptr<client::Client> MakeClient(
      const client::ClientOptions& options) const;
  // What a call over a connection of its own ends with.
  absl::Status Call(const client::ClientOptions& options) const;
  // The same client's, byte by byte.
  TlsClientOptions RawTrusting(const Identity& own = {}) const;
  // The number of the certificate that a new connection is shown; empty: it is
  // shown none.
  std::string ServedSerial(const TlsClientOptions& options) const;

  double Metric(const std::string& series) const {
    return process_->Metric(series);
  }

  const Identity authority_ = MakeAuthority("server CA");
  const Identity client_authority_ = MakeAuthority("client CA");
  const Identity foreign_authority_ = MakeAuthority("foreign CA");
  const TempFolder folder_;
  std::unique_ptr<ServerProcess> process_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_TLS_SERVING_H_
