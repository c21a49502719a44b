#include "client/grpc_attempt.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "client/grpc_headers.h"
#include "proto/wire/grpc_bytes.h"
#include "proto/wire/grpc_time.h"

namespace attnd::client {
namespace {

// How long to poll for an answer whose headers have come before it, as they do
// of a server that waits for its device: it polls that as long.
constexpr absl::Duration kAnswerIsNear = absl::Microseconds(200);

class GrpcResponse final : public Response {
 public:
  explicit GrpcResponse(grpc::ByteBuffer& buffer) : bytes_(buffer) {}

  absl::Span<const absl::string_view> fragments() const override {
    return bytes_.fragments();
  }

 private:
  const wire::ReceivedBytes bytes_;
};

// Whether something has come; does not wait for it.
bool LookAt(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.AsyncNext(&tag, &ok, std::chrono::system_clock::time_point()) ==
         grpc::CompletionQueue::GOT_EVENT;
}

// Waits for `events`; polls for them until `poll_end` before it sleeps.
void Await(grpc::CompletionQueue& queue, int events, absl::Time poll_end) {
  while (events > 0 && MonotonicNow() < poll_end) {
    if (LookAt(queue)) --events;
  }
  void* tag = nullptr;
  bool ok = false;
  for (; events > 0; --events) queue.Next(&tag, &ok);
}

// Nothing else is to come.
void End(grpc::CompletionQueue& queue) {
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
}

// When polling ends that begins now; `time` may be none.
absl::Time PollEnd(absl::Duration time) {
  return time <= absl::ZeroDuration() ? absl::InfinitePast()
                                      : MonotonicNow() + time;
}

}  // namespace

// gRPC sends the headers of a unary call with its message; of a stream they may
// go before. To the server both are the same.
struct GrpcAttempt::Opened {
  grpc::CompletionQueue queue;
  // In the context's memory, so it goes before that does.
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
};

GrpcAttempt::GrpcAttempt(std::shared_ptr<Connection> connection,
                         CallHeaders headers)
    : connection_(std::move(connection)),
      socket_(connection_->socket()),
      headers_(std::move(headers)),
      deadline_(headers_.deadline) {}

GrpcAttempt::~GrpcAttempt() = default;

void GrpcAttempt::Start(const std::string& method,
                        const std::vector<wire::Piece>& pieces,
                        Transport::Completion done) {
  // The attempt may end, and let go of both, before UnaryCall returns.
  const std::shared_ptr<grpc::ClientContext> context =
      Prepare(pieces, std::move(done));
  const std::shared_ptr<Connection> connection = connection_;
  connection->stub().UnaryCall(
      context.get(), method, grpc::StubOptions(), &request_, &response_,
      [this](const grpc::Status& status) { OnStatus(status); });
}

void GrpcAttempt::Run(const std::string& method,
                      const std::vector<wire::Piece>& pieces,
                      absl::Duration busy_poll, Transport::Completion done) {
  grpc::ClientContext* const context = Prepare(pieces, std::move(done)).get();
  grpc::CompletionQueue queue;
  grpc::Status status;
  LookAtIdle(queue);
  {
    // In the context's memory, so it goes before that does.
    const auto call =
        connection_->stub().PrepareUnaryCall(context, method, request_, &queue);
    call->StartCall();
    call->Finish(&response_, &status, nullptr);
    Await(queue, 1, PollEnd(busy_poll));
    End(queue);
  }
  OnStatus(status);
}

void GrpcAttempt::Open(const std::string& method, int64_t bytes) {
  opened_ = std::make_unique<Opened>();
  LookAtIdle(opened_->queue);
  opened_->call = connection_->stub().PrepareCall(MakeContext(bytes).get(),
                                                  method, &opened_->queue);
  opened_->call->StartCall(nullptr);
}

// Whatever fails on the way, the status tells of it.
void GrpcAttempt::RunOpened(const std::vector<wire::Piece>& pieces,
                            absl::Duration busy_poll,
                            Transport::Completion done) {
  const std::unique_ptr<Opened> opened = std::move(opened_);
  keep_alive_ = shared_from_this();
  done_ = std::move(done);
  request_ = wire::ToByteBuffer(pieces, [this] { Release(); });
  const absl::Time poll_end = PollEnd(busy_poll);
  // gRPC takes the message once it has the headers.
  Await(opened->queue, 1, poll_end);
  opened->call->WriteLast(request_, grpc::WriteOptions(), nullptr);
  opened->call->ReadInitialMetadata(nullptr);
  Await(opened->queue, 2, poll_end);
  grpc::Status status;
  opened->call->Read(&response_, nullptr);
  opened->call->Finish(&status, nullptr);
  Await(opened->queue, 2, std::max(poll_end, PollEnd(kAnswerIsNear)));
  End(opened->queue);
  opened->call.reset();
  if (status.ok() && !response_.Valid()) {
    status = grpc::Status(grpc::StatusCode::INTERNAL,
                          "the server's answer has no message");
  }
  OnStatus(status);
}

void GrpcAttempt::Drop() {
  const std::unique_ptr<Opened> opened = std::move(opened_);
  Cancel();
  Await(opened->queue, 1, absl::InfinitePast());
  End(opened->queue);
}

void GrpcAttempt::Cancel() {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(mutex_);
    context = context_;
    deadline_ = std::min(deadline_, MonotonicNow());
  }
  if (context != nullptr) context->TryCancel();
}

absl::Time GrpcAttempt::due() const {
  MutexLock lock(mutex_);
  return deadline_;
}

std::shared_ptr<grpc::ClientContext> GrpcAttempt::MakeContext(int64_t bytes) {
  auto context = std::make_shared<grpc::ClientContext>();
  SayHeaders(headers_, bytes, *context);
  connection_->Identify(*context);
  MutexLock lock(mutex_);
  if (deadline_ != absl::InfiniteFuture()) {
    context->set_deadline(wire::ToGrpcDeadline(deadline_));
  }
  context_ = context;
  return context;
}

std::shared_ptr<grpc::ClientContext> GrpcAttempt::Prepare(
    const std::vector<wire::Piece>& pieces, Transport::Completion done) {
  keep_alive_ = shared_from_this();
  done_ = std::move(done);
  request_ = wire::ToByteBuffer(pieces, [this] { Release(); });
  return MakeContext(static_cast<int64_t>(request_.Length()));
}

// If the server has closed the connection meanwhile, this look at the network
// notices, and the call makes another.
void GrpcAttempt::LookAtIdle(grpc::CompletionQueue& queue) {
  if (connection_->WasIdle()) LookAt(queue);
}

void GrpcAttempt::OnStatus(const grpc::Status& status) {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(mutex_);
    context.swap(context_);
  }
  if (status.ok()) {
    result_ = std::make_unique<GrpcResponse>(response_);
  } else {
    result_ = connection_->Explain(StatusOf(status, *context));
  }
  if (status.error_code() == grpc::UNAVAILABLE) connection_->Retire();
  connection_.reset();
  response_.Clear();
  request_.Clear();
  context.reset();
  Release();
}

// May run inside gRPC, when it drops the last slice: by then nothing of
// gRPC's is left here, and `done_` neither blocks nor calls it.
void GrpcAttempt::Release() {
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::shared_ptr<GrpcAttempt> self = std::move(keep_alive_);
  std::exchange(done_, nullptr)(std::move(result_));
}

}  // namespace attnd::client
