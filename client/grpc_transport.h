#ifndef ATTND_CLIENT_GRPC_TRANSPORT_H_
#define ATTND_CLIENT_GRPC_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "client/connection.h"
#include "client/credentials.h"
#include "client/executor.h"
#include "client/grpc_attempt.h"
#include "client/transport.h"
#include "client/watchdog.h"

namespace attnd::client {

// Calls over gRPC channels: `options.connections` of them to one target, taken
// in turn. Attempts run on gRPC's own callback threads, of which there is a
// fixed number, or on that of a caller who waits; streams on one thread for
// each connection that has had any. An attempt or a stream that has not let go
// of the caller's memory within options.keepalive_timeout of its deadline, or
// of being cancelled, takes its connection down: over TCP the kernel sees to
// that, over a unix socket a thread of this class.
class GrpcTransport final : public Transport {
 public:
  // `options` are valid, and `credentials` theirs for `target`.
  GrpcTransport(const std::string& target, const ClientOptions& options,
                const std::shared_ptr<Credentials>& credentials);

  std::function<void()> Start(const std::string& method,
                              const std::vector<wire::Piece>& pieces,
                              const CallHeaders& headers,
                              Completion done) override;
  // Blocks until the outcome is known.
  void Run(const std::string& method, const std::vector<wire::Piece>& pieces,
           const CallHeaders& headers, Completion done) override;
  std::unique_ptr<OpenedCall> Open(const std::string& method, int64_t bytes,
                                   const CallHeaders& headers) override;

  uint32_t TakeTurn() override {
    return next_.fetch_add(1, std::memory_order_relaxed);
  }
  absl::StatusOr<std::shared_ptr<ByteStream>> OpenStream(
      const std::string& method, uint32_t turn, const CallHeaders& headers,
      StreamEvents& events) override;

 private:
  ConnectionSlot& SlotOf(uint32_t turn) {
    return *slots_[turn % slots_.size()];
  }
  // UNAVAILABLE: there is no connection to be had.
  absl::StatusOr<std::shared_ptr<GrpcAttempt>> NewAttempt(
      const CallHeaders& headers);

  const absl::Duration busy_poll_;
  // The first is null for a TCP address; the second for one for which nothing
  // will be renewed, too. The slots' connections are destroyed on the executor,
  // and it ends before the watchdog that it runs.
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::vector<std::unique_ptr<ConnectionSlot>> slots_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_GRPC_TRANSPORT_H_
