#include "client/prepare.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "client/messages.h"
#include "client/tensor_size.h"
#include "proto/wire/chunk_grid.h"

namespace attnd::client {
namespace {

struct ForwardMethod {
  static constexpr char kPath[] = "/attn.v1.AttentionService/Forward";
  static constexpr auto Encode = EncodeForward;
  static constexpr auto Decode = DecodeForward;
  static constexpr auto EncodeExchange = EncodeForwardExchange;
  static constexpr auto DecodeExchange = DecodeForwardExchange;
};
struct BackwardMethod {
  static constexpr char kPath[] = "/attn.v1.AttentionService/Backward";
  static constexpr auto Encode = EncodeBackward;
  static constexpr auto Decode = DecodeBackward;
  static constexpr auto EncodeExchange = EncodeBackwardExchange;
  static constexpr auto DecodeExchange = DecodeBackwardExchange;
};

// Adds up bytes, of tensors that may be no tensors: encoding says so.
class Sum {
 public:
  template <typename T>
  void Add(const T& tensor) {
    if (tensor.shape.empty()) return;
    const int64_t bytes =
        TensorBytes("", tensor.dtype, tensor.shape).value_or(0);
    total_ = bytes > kMost - total_ ? kMost : total_ + bytes;
  }
  int64_t total() const { return total_; }

 private:
  static constexpr int64_t kMost = int64_t{1} << 62;
  int64_t total_ = 0;
};

// Of inputs and outputs.
int64_t TotalBytes(const ForwardCall& call) {
  Sum sum;
  for (const ConstTensor* t : {&call.q, &call.k, &call.v, &call.bias}) {
    sum.Add(*t);
  }
  for (const Tensor* t : {&call.o, &call.lse}) sum.Add(*t);
  return sum.total();
}

int64_t TotalBytes(const BackwardCall& call) {
  Sum sum;
  for (const ConstTensor* t : {&call.q, &call.k, &call.v, &call.bias, &call.d_o,
                               &call.lse, &call.o, &call.delta, &call.d_lse}) {
    sum.Add(*t);
  }
  for (const Tensor* t : {&call.dq, &call.dk, &call.dv}) sum.Add(*t);
  return sum.total();
}

ExchangeWishes WishesFor(int64_t bytes, const Route& route) {
  ExchangeWishes wishes;
  wishes.streams = static_cast<int>(std::clamp<int64_t>(
      bytes / kBytesPerStream, 1,
      std::min(route.connections * kStreamsPerConnection, kMaxStreams)));
  // A chunk and what is around it must pass for a message.
  if (route.max_message_bytes < 2 * wire::kMaxChunkBytes) {
    wishes.chunk_bytes = std::max<int64_t>(
        absl::bit_floor(static_cast<uint64_t>(route.max_message_bytes) / 2),
        wire::kMinChunkBytes);
  }
  return wishes;
}

template <typename Method, typename TensorCall>
absl::Status Prepare(const TensorCall& call, const CallOptions& options,
                     const Route& route, Report& report, CallSpec& spec) {
  spec.method = Method::kPath;
  spec.decode = [outputs = Outputs(call), &report](Fragments fragments) {
    return Method::Decode(fragments, outputs, report);
  };
  const bool is_auto = options.transport == TransportKind::kAuto;
  const int64_t bytes = TotalBytes(call);
  if (options.transport == TransportKind::kUnary ||
      (is_auto && (bytes < kStreamFromBytes || route.lacks_exchange))) {
    absl::StatusOr<Pieces> pieces =
        Method::Encode(call, options, route.max_message_bytes);
    if (pieces.ok()) {
      spec.pieces = *std::move(pieces);
      return absl::OkStatus();
    }
    if (!is_auto) return pieces.status();
    // Too large for a message, perhaps.
  }
  absl::StatusOr<ExchangeParts> parts =
      Method::EncodeExchange(call, options, WishesFor(bytes, route));
  if (!parts.ok()) return parts.status();
  spec.exchange = std::make_unique<TransferSpec>();
  spec.exchange->parts = *std::move(parts);
  spec.exchange->decode = [outputs = spec.exchange->parts.outputs,
                           &report](Fragments fragments) {
    return Method::DecodeExchange(fragments, outputs, report);
  };
  if (is_auto) {
    spec.make_unary = [call, options, limit = route.max_message_bytes] {
      return Method::Encode(call, options, limit);
    };
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareForward(const ForwardCall& call, const CallOptions& options,
                            const Route& route, Report& report,
                            CallSpec& spec) {
  return Prepare<ForwardMethod>(call, options, route, report, spec);
}

absl::Status PrepareBackward(const BackwardCall& call,
                             const CallOptions& options, const Route& route,
                             Report& report, CallSpec& spec) {
  return Prepare<BackwardMethod>(call, options, route, report, spec);
}

}  // namespace attnd::client
