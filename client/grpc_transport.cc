#include "client/grpc_transport.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "proto/status.h"

namespace attnd::client {
namespace {

// A message this small is copied into one slice: cheaper than keeping count
// of several.
constexpr size_t kCopiedBytes = 8 << 10;

class GrpcResponse final : public Response {
 public:
  // Null when gRPC cannot show the message's slices.
  static std::unique_ptr<GrpcResponse> From(const grpc::ByteBuffer& buffer) {
    auto response = std::make_unique<GrpcResponse>();
    if (!buffer.Dump(&response->slices_).ok()) return nullptr;
    response->fragments_.reserve(response->slices_.size());
    for (const grpc::Slice& slice : response->slices_) {
      response->fragments_.emplace_back(
          reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return response;
  }

  absl::Span<const absl::string_view> fragments() const override {
    return fragments_;
  }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<absl::string_view> fragments_;
};

absl::Status ToAbsl(const grpc::Status& status) {
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  absl::Status detailed;
  if (!status.error_details().empty() &&
      wire::DecodeStatus(status.error_details(), detailed).ok() &&
      detailed.code() == result.code()) {
    return detailed;
  }
  return result;
}

// One attempt. It ends when the status is known and gRPC has dropped the last
// slice over the caller's memory, which can be later: `holds_` counts both.
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
    request_ = Borrow(pieces);
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
  grpc::ByteBuffer Borrow(const std::vector<wire::Piece>& pieces) {
    size_t total = 0;
    for (const wire::Piece& piece : pieces) {
      total += piece.owned.size() + piece.borrowed.size();
    }
    if (total <= kCopiedBytes) return Copy(pieces, total);
    std::vector<grpc::Slice> slices;
    for (const wire::Piece& piece : pieces) {
      if (!piece.owned.empty()) slices.push_back(Borrow(piece.owned));
      if (!piece.borrowed.empty()) slices.push_back(Borrow(piece.borrowed));
    }
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

  grpc::Slice Borrow(absl::string_view bytes) {
    holds_.fetch_add(1, std::memory_order_relaxed);
    return grpc::Slice(
        const_cast<char*>(bytes.data()), bytes.size(),
        [](void* attempt) { static_cast<Attempt*>(attempt)->Release(); }, this);
  }

  static grpc::ByteBuffer Copy(const std::vector<wire::Piece>& pieces,
                               size_t total) {
    grpc_slice bytes = grpc_slice_malloc(total);
    uint8_t* next = GRPC_SLICE_START_PTR(bytes);
    for (const wire::Piece& piece : pieces) {
      next = std::copy(piece.owned.begin(), piece.owned.end(), next);
      next = std::copy(piece.borrowed.begin(), piece.borrowed.end(), next);
    }
    const grpc::Slice slice(bytes, grpc::Slice::STEAL_REF);
    return grpc::ByteBuffer(&slice, 1);
  }

  void OnStatus(const grpc::Status& status) {
    if (!status.ok()) {
      result_ = ToAbsl(status);
    } else if (auto response = GrpcResponse::From(response_)) {
      result_ = std::move(response);
    } else {
      result_ = absl::InternalError("the response cannot be read");
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

  // May run inside gRPC, when it drops a slice: whatever is left here by then
  // is not gRPC's, and `done_` neither blocks nor calls it.
  void Release() {
    if (holds_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    const std::shared_ptr<Attempt> self = std::move(keep_alive_);
    std::exchange(done_, nullptr)(std::move(result_));
  }

  Transport::Completion done_;
  std::shared_ptr<Attempt> keep_alive_;
  std::atomic<int> holds_{1};  // of the status; and one per slice
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
