#include "tests/bench/security/flooders.h"

#include <sys/resource.h>

namespace attnd::bench {
namespace {

// A connection that took this much is one that is never ended. Of one that
// gRPC has ended the server takes 16 MiB more, which nobody sees.
constexpr int64_t kEndlessBytes = 64 << 20;
// Where good calls run on the same processor, they go first.
constexpr int kNice = 19;

}  // namespace

Flooders::Flooders(const std::string& address, const testing::Flood& flood,
                   const testing::TlsClientOptions* tls,
                   const FlooderOptions& options)
    : address_(address), flood_(flood), tls_(tls), options_(options) {
  for (int i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this, i] { Run(2 + i); });
  }
}

void Flooders::Run(int host) {
  sched_setaffinity(0, sizeof(options_.processors), &options_.processors);
  // On Linux this is the thread's alone.
  setpriority(PRIO_PROCESS, 0, kNice);
  while (!stops_) {
    testing::FloodingPeer peer(address_, host, tls_);
    const bool is_ended = peer.Pour(flood_, kEndlessBytes);
    ++connections_;
    bytes_ += peer.sent_bytes();
    if (peer.sent_bytes() == 0) {
      ++refused_;
    } else if (!is_ended) {
      ++never_ended_;
    }
  }
}

Poured Flooders::Stop() {
  stops_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  Poured poured;
  poured.connections = connections_;
  poured.refused = refused_;
  poured.never_ended = never_ended_;
  poured.mib = static_cast<double>(bytes_) / (1 << 20);
  return poured;
}

}  // namespace attnd::bench
