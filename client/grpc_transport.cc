#include "client/grpc_transport.h"

#include <utility>

#include "client/grpc_attempt.h"
#include "client/grpc_stream.h"
#include "grpc/grpc.h"

namespace attnd::client {
namespace {

class GrpcOpenedCall final : public OpenedCall {
 public:
  GrpcOpenedCall(std::shared_ptr<GrpcAttempt> attempt, absl::Duration busy_poll)
      : attempt_(std::move(attempt)), busy_poll_(busy_poll) {}
  ~GrpcOpenedCall() override {
    if (attempt_ != nullptr) attempt_->Drop();
  }

  void Run(const std::vector<wire::Piece>& pieces,
           Transport::Completion done) override {
    std::exchange(attempt_, nullptr)
        ->RunOpened(pieces, busy_poll_, std::move(done));
  }

 private:
  std::shared_ptr<GrpcAttempt> attempt_;  // null: it has been run
  const absl::Duration busy_poll_;
};

}  // namespace

GrpcTransport::GrpcTransport(const std::string& target,
                             const ClientOptions& options,
                             const std::shared_ptr<Credentials>& credentials)
    : busy_poll_(options.busy_poll) {
  // Keeps gRPC up until the process ends. Otherwise the last channel to go
  // shuts it down, which after a write that got stuck takes up to 10 s.
  [[maybe_unused]] static const bool initialized = (grpc_init(), true);
  const bool on_unix_socket = UnixSocket::Names(target);
  if (on_unix_socket || credentials->renewable()) {
    executor_ = std::make_unique<ThreadExecutor>(1);
  }
  if (credentials->renewable()) KeepRenewed(credentials, *executor_);
  if (on_unix_socket) {
    watchdog_ =
        std::make_unique<Watchdog>(*executor_, options.keepalive_timeout);
  }
  for (int i = 0; i < options.connections; ++i) {
    slots_.push_back(std::make_unique<ConnectionSlot>(
        target, options, credentials, i, executor_.get()));
  }
}

absl::StatusOr<std::shared_ptr<GrpcAttempt>> GrpcTransport::NewAttempt(
    const CallHeaders& headers) {
  auto connection = SlotOf(TakeTurn()).Get();
  if (!connection.ok()) return connection.status();
  auto attempt = std::make_shared<GrpcAttempt>(*std::move(connection), headers);
  if (watchdog_ != nullptr) watchdog_->Watch(attempt);
  return attempt;
}

std::function<void()> GrpcTransport::Start(
    const std::string& method, const std::vector<wire::Piece>& pieces,
    const CallHeaders& headers, Completion done) {
  const auto attempt = NewAttempt(headers);
  if (!attempt.ok()) {
    done(attempt.status());
    return [] {};
  }
  (*attempt)->Start(method, pieces, std::move(done));
  std::weak_ptr<GrpcAttempt> weak = *attempt;
  return [weak] {
    if (const std::shared_ptr<GrpcAttempt> alive = weak.lock()) {
      alive->Cancel();
    }
  };
}

void GrpcTransport::Run(const std::string& method,
                        const std::vector<wire::Piece>& pieces,
                        const CallHeaders& headers, Completion done) {
  const auto attempt = NewAttempt(headers);
  if (!attempt.ok()) return done(attempt.status());
  (*attempt)->Run(method, pieces, busy_poll_, std::move(done));
}

std::unique_ptr<OpenedCall> GrpcTransport::Open(const std::string& method,
                                                int64_t bytes,
                                                const CallHeaders& headers) {
  const auto attempt = NewAttempt(headers);
  if (!attempt.ok()) return nullptr;
  (*attempt)->Open(method, bytes);
  return std::make_unique<GrpcOpenedCall>(*attempt, busy_poll_);
}

absl::StatusOr<std::shared_ptr<ByteStream>> GrpcTransport::OpenStream(
    const std::string& method, uint32_t turn, const CallHeaders& headers,
    StreamEvents& events) {
  ConnectionSlot& slot = SlotOf(turn);
  auto connection = slot.Get();
  if (!connection.ok()) return connection.status();
  auto stream = std::make_shared<GrpcStream>(
      *std::move(connection), slot.queue(), method, headers, events);
  if (watchdog_ != nullptr) watchdog_->Watch(stream);
  return stream;
}

}  // namespace attnd::client
