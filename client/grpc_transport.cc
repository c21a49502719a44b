#include "client/grpc_transport.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "proto/grpc_bytes.h"
#include "proto/grpc_status.h"

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

// One attempt. It ends when the status is known and gRPC has let go of the
// caller's memory, which can be later.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  explicit Attempt(Transport::Completion done) : done_(std::move(done)) {}

  // `stub` must live until this returns.
  template <typename Stub>
  void Start(Stub& stub, const std::string& method,
             const std::vector<wire::Piece>& pieces, absl::Time deadline) {
    keep_alive_ = shared_from_this();
    context_ = std::make_shared<grpc::ClientContext>();
    if (deadline != absl::InfiniteFuture()) {
      context_->set_deadline(absl::ToChronoTime(deadline));
    }
    request_ = wire::ToByteBuffer(pieces, [this] { Release(); });
    // The attempt, and with it the context, may end before UnaryCall returns.
    const std::shared_ptr<grpc::ClientContext> context = context_;
    stub.UnaryCall(context.get(), method, grpc::StubOptions(), &request_,
                   &response_,
                   [this](const grpc::Status& status) { OnStatus(status); });
  }

  void Cancel() {
    std::shared_ptr<grpc::ClientContext> context;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      context = context_;
    }
    if (context != nullptr) context->TryCancel();
  }

 private:
  void OnStatus(const grpc::Status& status) {
    if (status.ok()) {
      result_ = std::make_unique<GrpcResponse>(response_);
    } else {
      result_ = wire::FromGrpcStatus(status);
    }
    response_.Clear();
    request_.Clear();
    {
      std::shared_ptr<grpc::ClientContext> context;
      std::lock_guard<std::mutex> lock(mutex_);
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

  Transport::Completion done_;
  std::shared_ptr<Attempt> keep_alive_;
  std::atomic<int> holds_{2};  // the status, and the caller's memory
  grpc::ByteBuffer request_, response_;
  Transport::Result result_ = absl::UnknownError("no status");
  std::mutex mutex_;
  std::shared_ptr<grpc::ClientContext> context_;  // until the status is known
};

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(duration), 1, std::numeric_limits<int>::max()));
}

grpc::ChannelArguments Arguments(const ClientOptions& options, int connection) {
  grpc::ChannelArguments args;
  // Distinct arguments and pools of their own: connections are not shared.
  args.SetInt("attnd.connection", connection);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  args.SetMaxSendMessageSize(-1);  // checked before, naming the field
  // Retries are ours: gRPC's buffer is far smaller than a tensor.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
              Milliseconds(options.initial_backoff));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
              Milliseconds(options.max_backoff));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
              Milliseconds(options.keepalive_timeout));
  // A write that is stuck sends no data, and a long computation neither.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
              1 << GRPC_COMPRESS_NONE);
  return args;
}

}  // namespace

GrpcTransport::GrpcTransport(const std::string& target,
                             const ClientOptions& options) {
  // Keeps gRPC up until the process ends. Otherwise the last channel to go
  // shuts it down, which after a write that got stuck takes up to 10 s.
  [[maybe_unused]] static const bool initialized = (grpc_init(), true);
  for (int i = 0; i < options.connections; ++i) {
    stubs_.push_back(std::make_unique<Stub>(grpc::CreateCustomChannel(
        target, grpc::InsecureChannelCredentials(), Arguments(options, i))));
  }
}

std::function<void()> GrpcTransport::Start(
    const std::string& method, const std::vector<wire::Piece>& pieces,
    absl::Time deadline, Completion done) {
  auto attempt = std::make_shared<Attempt>(std::move(done));
  Stub& stub =
      *stubs_[next_.fetch_add(1, std::memory_order_relaxed) % stubs_.size()];
  attempt->Start(stub, method, pieces, deadline);
  std::weak_ptr<Attempt> weak = attempt;
  return [weak] {
    if (const std::shared_ptr<Attempt> alive = weak.lock()) alive->Cancel();
  };
}

}  // namespace attnd::client
