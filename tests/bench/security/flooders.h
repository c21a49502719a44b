#ifndef ATTND_TESTS_BENCH_SECURITY_FLOODERS_H_
#define ATTND_TESTS_BENCH_SECURITY_FLOODERS_H_

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/floods.h"
#include "tests/tls_client.h"

namespace attnd::bench {

// What became of hostile connections.
struct Poured {
  int64_t connections = 0;
  int64_t refused = 0;      // before they could say anything
  int64_t never_ended = 0;  // whatever they sent
  int64_t held = 0;         // that were not to be ended
  double mib = 0;           // in all

  int64_t ended() const { return connections - refused - never_ended - held; }
};

struct FlooderOptions {
  int threads = 4;  // each from an address of its own, 127.0.0.2 and on
  // Where they run, so that they take nothing from who is measured.
  cpu_set_t processors;
};

// Threads that flood a server: each connects, pours until it is ended, and
// connects again.
class Flooders {
 public:
  // All but `options` must outlive it. `tls` null: in clear.
  Flooders(const std::string& address, const testing::Flood& flood,
           const testing::TlsClientOptions* tls, const FlooderOptions& options);
  ~Flooders() { Stop(); }

  // Waits for connections that are still poured into.
  Poured Stop();

 private:
  void Run(int host);

  const std::string& address_;
  const testing::Flood& flood_;
  const testing::TlsClientOptions* const tls_;
  const FlooderOptions options_;
  std::atomic<bool> stops_{false};
  std::atomic<int64_t> connections_{0}, refused_{0}, never_ended_{0}, bytes_{0};
  std::vector<std::thread> threads_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_FLOODERS_H_
