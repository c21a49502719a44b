#include "client/grpc_transport.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/grpc_stream.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "proto/wire/grpc_bytes.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/grpc_time.h"
#include "proto/wire/metadata.h"

namespace attnd::client {
namespace {

class GrpcResponse final : public Response {
 public:
  explicit GrpcResponse(grpc::ByteBuffer& buffer) : bytes_(buffer) {}

  absl::Span<const absl::string_view> fragments() const override {
    return bytes_.fragments();
  }

 private:
  const wire::ReceivedBytes bytes_;
};

}  // namespace

// One attempt. It ends when the status is known and gRPC has let go of the
// caller's memory, which can be later.
class GrpcTransport::Attempt final
    : public Watched,
      public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::shared_ptr<Connection> connection, absl::Time deadline,
          Transport::Completion done)
      : connection_(std::move(connection)),
        socket_(connection_->socket()),
        deadline_(deadline),
        done_(std::move(done)) {}

  void Start(const std::string& method,
             const std::vector<wire::Piece>& pieces) {
    // The attempt may end, and let go of both, before UnaryCall returns.
    const std::shared_ptr<grpc::ClientContext> context = Prepare(pieces);
    const std::shared_ptr<Connection> connection = connection_;
    connection->stub().UnaryCall(
        context.get(), method, grpc::StubOptions(), &request_, &response_,
        [this](const grpc::Status& status) { OnStatus(status); });
  }

  // The same, and waits for the status. This thread reads the answer from the
  // network itself: waking it up from one of gRPC's costs a fifth of the
  // smallest call.
  void Run(const std::string& method, const std::vector<wire::Piece>& pieces,
           absl::Duration busy_poll) {
    grpc::ClientContext* const context = Prepare(pieces).get();
    grpc::CompletionQueue queue;
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    // If the server has closed the connection meanwhile, this look at the
    // network notices, and the call makes another.
    if (connection_->WasIdle()) LookAt(queue);
    {
      // In the context's memory, so it goes before that does.
      const auto call = connection_->stub().PrepareUnaryCall(context, method,
                                                             request_, &queue);
      call->StartCall();
      call->Finish(&response_, &status, nullptr);
      if (!Poll(queue, busy_poll)) queue.Next(&tag, &ok);
      queue.Shutdown();
      queue.Next(&tag, &ok);  // it is empty
    }
    OnStatus(status);
  }

  void Cancel() {
    std::shared_ptr<grpc::ClientContext> context;
    {
      MutexLock lock(mutex_);
      context = context_;
      deadline_ = std::min(deadline_, MonotonicNow());
    }
    if (context != nullptr) context->TryCancel();
  }

  absl::Time due() const override {
    MutexLock lock(mutex_);
    return deadline_;
  }
  // gRPC is stuck in a write; what else goes over the connection is lost.
  void Break() override { socket_->Shutdown(); }

 private:
  // Whether something has come; does not wait for it.
  static bool LookAt(grpc::CompletionQueue& queue) {
    void* tag = nullptr;
    bool ok = false;
    return queue.AsyncNext(&tag, &ok,
                           std::chrono::system_clock::time_point()) ==
           grpc::CompletionQueue::GOT_EVENT;
  }

  // Whether something has come within `time`.
  static bool Poll(grpc::CompletionQueue& queue, absl::Duration time) {
    if (time <= absl::ZeroDuration()) return false;
    const absl::Time end = MonotonicNow() + time;
    do {
      if (LookAt(queue)) return true;
    } while (MonotonicNow() < end);
    return false;
  }

  // Returns the context, which the attempt itself keeps until OnStatus.
  std::shared_ptr<grpc::ClientContext> Prepare(
      const std::vector<wire::Piece>& pieces) {
    keep_alive_ = shared_from_this();
    auto context = std::make_shared<grpc::ClientContext>();
    {
      MutexLock lock(mutex_);
      if (deadline_ != absl::InfiniteFuture()) {
        context->set_deadline(wire::ToGrpcDeadline(deadline_));
      }
      context_ = context;
    }
    request_ = wire::ToByteBuffer(pieces, [this] { Release(); });
    context->AddMetadata(wire::kRequestBytesKey,
                         absl::StrCat(request_.Length()));
    return context;
  }

  void OnStatus(const grpc::Status& status) {
    if (status.ok()) {
      result_ = std::make_unique<GrpcResponse>(response_);
    } else {
      result_ = wire::FromGrpcStatus(status);
    }
    if (status.error_code() == grpc::UNAVAILABLE) connection_->Retire();
    connection_.reset();
    response_.Clear();
    request_.Clear();
    {
      std::shared_ptr<grpc::ClientContext> context;
      MutexLock lock(mutex_);
      context.swap(context_);
    }
    Release();
  }

  // May run inside gRPC, when it drops the last slice: by then nothing of
  // gRPC's is left here, and `done_` neither blocks nor calls it.
  void Release() {
    if (holds_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    const std::shared_ptr<Attempt> self = std::move(keep_alive_);
    std::exchange(done_, nullptr)(std::move(result_));
  }

  std::shared_ptr<Connection> connection_;  // until the status is known
  const std::shared_ptr<UnixSocket> socket_;
  mutable Mutex mutex_;
  // Of the call, or when it was cancelled.
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  // Until the status is known.
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  Transport::Completion done_;
  std::shared_ptr<Attempt> keep_alive_;
  std::atomic<int> holds_{2};  // the status, and the caller's memory
  grpc::ByteBuffer request_, response_;
  Transport::Result result_ = absl::UnknownError("no status");
};

GrpcTransport::GrpcTransport(const std::string& target,
                             const ClientOptions& options)
    : busy_poll_(options.busy_poll) {
  // Keeps gRPC up until the process ends. Otherwise the last channel to go
  // shuts it down, which after a write that got stuck takes up to 10 s.
  [[maybe_unused]] static const bool initialized = (grpc_init(), true);
  if (UnixSocket::Names(target)) {
    executor_ = std::make_unique<ThreadExecutor>(1);
    watchdog_ =
        std::make_unique<Watchdog>(*executor_, options.keepalive_timeout);
  }
  for (int i = 0; i < options.connections; ++i) {
    slots_.push_back(
        std::make_unique<ConnectionSlot>(target, options, i, executor_.get()));
  }
}

std::shared_ptr<GrpcTransport::Attempt> GrpcTransport::NewAttempt(
    absl::Time deadline, Completion done) {
  auto connection = SlotOf(TakeTurn()).Get();
  if (!connection.ok()) {
    done(connection.status());
    return nullptr;
  }
  auto attempt = std::make_shared<Attempt>(*std::move(connection), deadline,
                                           std::move(done));
  if (watchdog_ != nullptr) watchdog_->Watch(attempt);
  return attempt;
}

std::function<void()> GrpcTransport::Start(
    const std::string& method, const std::vector<wire::Piece>& pieces,
    absl::Time deadline, Completion done) {
  const auto attempt = NewAttempt(deadline, std::move(done));
  if (attempt == nullptr) return [] {};
  attempt->Start(method, pieces);
  std::weak_ptr<Attempt> weak = attempt;
  return [weak] {
    if (const std::shared_ptr<Attempt> alive = weak.lock()) alive->Cancel();
  };
}

void GrpcTransport::Run(const std::string& method,
                        const std::vector<wire::Piece>& pieces,
                        absl::Time deadline, Completion done) {
  const auto attempt = NewAttempt(deadline, std::move(done));
  if (attempt != nullptr) attempt->Run(method, pieces, busy_poll_);
}

absl::StatusOr<std::shared_ptr<ByteStream>> GrpcTransport::OpenStream(
    const std::string& method, uint32_t turn, absl::Time deadline,
    StreamEvents& events) {
  ConnectionSlot& slot = SlotOf(turn);
  auto connection = slot.Get();
  if (!connection.ok()) return connection.status();
  auto stream = std::make_shared<GrpcStream>(
      *std::move(connection), slot.queue(), method, deadline, events);
  if (watchdog_ != nullptr) watchdog_->Watch(stream);
  return stream;
}

}  // namespace attnd::client
