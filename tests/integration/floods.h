#ifndef ATTND_TESTS_INTEGRATION_FLOODS_H_
#define ATTND_TESTS_INTEGRATION_FLOODS_H_

// What brings a gRPC server (1.51) down by bytes that HTTP/2 allows, for tests
// and benchmarks: each kind that is known, endless.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/descriptor.h"
#include "tests/tls_client.h"

namespace attnd::testing {

struct Flood {
  std::string name;
  // What comes after the greeting, once.
  std::string first;
  // What comes then, over and over; `i` counts from 0.
  std::function<std::string(uint32_t i)> more;
  bool acknowledges = true;  // the server's SETTINGS
  // gRPC may end it as well, by what came before the server has seen enough.
  bool grpc_may_end = false;
};

const std::vector<Flood>& AllFloods();

// One hostile connection, in clear or by TLS.
class FloodingPeer {
 public:
  // To "host:port" on loopback, from 127.0.0.`host`. `tls` null: in clear.
  FloodingPeer(const std::string& address, int host,
               const TlsClientOptions* tls);

  // Sends the flood until the server ends the connection or `most_bytes` are
  // sent, whatever a write brings of it. False: it was never ended.
  bool Pour(const Flood& flood, int64_t most_bytes);
  int64_t sent_bytes() const { return sent_bytes_; }
  // Reads until the server ends the connection; false: it does not. A write
  // tells later than that, as the server takes what is still on its way.
  bool AwaitEnd();

 private:
  bool Send(absl::string_view bytes);
  void Greet(bool acknowledges);

  Descriptor socket_;
  std::unique_ptr<TlsClient> tls_;
  int64_t sent_bytes_ = 0;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_FLOODS_H_
