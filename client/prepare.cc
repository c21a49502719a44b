#include "client/prepare.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attn/v1/attention.pb.h"
#include "client/messages.h"
#include "client/placement.h"
#include "google/protobuf/descriptor.h"
#include "proto/wire/chunk_grid.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

struct ForwardMethod {
  using Request = ::attn::v1::ForwardRequest;
  static constexpr char kPath[] = "/attn.v1.AttentionService/Forward";
  static constexpr auto Encode = EncodeForward;
  static constexpr auto Decode = DecodeForward;
  static constexpr auto EncodeExchange = EncodeForwardExchange;
  static constexpr auto DecodeExchange = DecodeForwardExchange;
};
struct BackwardMethod {
  using Request = ::attn::v1::BackwardRequest;
  static constexpr char kPath[] = "/attn.v1.AttentionService/Backward";
  static constexpr auto Encode = EncodeBackward;
  static constexpr auto Decode = DecodeBackward;
  static constexpr auto EncodeExchange = EncodeBackwardExchange;
  static constexpr auto DecodeExchange = DecodeBackwardExchange;
};

std::string UnknownRegion(const absl::Status& refusal) {
  return absl::StrCat("the server does not know its region (",
                      refusal.message(), ")");
}

std::string LacksRegions(const absl::Status& refusal) {
  return absl::StrCat("the server lacks regions (", refusal.message(), ")");
}

// Of a call for which there is no other way.
absl::Status WithHint(const absl::Status& refusal) {
  absl::Status status(
      refusal.code(),
      absl::StrCat(refusal.message(),
                   " (tensors in a GPU's region cannot be sent by their bytes "
                   "instead; is it the server of the region's socket?)"));
  refusal.ForEachPayload(
      [&status](absl::string_view url, const absl::Cord& payload) {
        status.SetPayload(url, payload);
      });
  return status;
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

// What a request takes at most whose tensors all go by reference and have no
// more dimensions than any that a server takes.
int64_t MostRequestBytes(const Attention& attention) {
  constexpr int64_t kFixedBytes = 4096, kVarintBytes = 10;
  return kFixedBytes +
         kVarintBytes * static_cast<int64_t>(attention.q_lens.size() +
                                             attention.kv_lens.size() +
                                             attention.q_start.size() +
                                             attention.kv_start.size());
}

template <typename Method, typename TensorCall>
class Preparation {
 public:
  Preparation(const TensorCall& call, const CallOptions& options,
              const Route& route, Report& report)
      : call_(call), options_(options), route_(route), report_(report) {}

  absl::Status Begin(CallSpec& spec) {
    // The call keeps the regions that it needs, and no others.
    absl::StatusOr<Placement> placement = Place(
        call_,
        {std::move(route_.regions), options_.transport, route_.region_refusal});
    if (!placement.ok()) return placement.status();
    placement_ = *std::move(placement);
    spec.method = Method::kPath;
    spec.regions = placement_.regions;
    return Fill(spec);
  }

  // Whether there is another way, should the server refuse this one.
  bool CanFallBack(const CallSpec& spec) const {
    return is_auto() && (spec.exchange != nullptr || spec.by_reference);
  }

  // CallSpec::fall_back.
  absl::Status FallBack(const absl::Status& refusal, CallSpec& spec) {
    if (auto regions = placement_.Used(/*on_device=*/false); !regions.empty()) {
      return DoWithout(std::move(regions), refusal, spec);
    }
    if (spec.exchange != nullptr && absl::IsUnimplemented(refusal)) {
      lesson_.lacks_exchange = true;
      LearnThat(spec);
      spec.exchange.reset();
      absl::Status status = FillUnary(spec);
      if (status.ok()) return status;
      return absl::UnimplementedError(absl::StrCat(
          "the server lacks Exchange (", refusal.message(),
          "), and the call is too large for one message: ", status.message()));
    }
    if (!placement_.places.empty()) return WithHint(refusal);
    return refusal;
  }

 private:
  bool is_auto() const { return options_.transport == TransportKind::kAuto; }

  // By `placement_`.
  absl::Status Fill(CallSpec& spec) {
    report_.fallback = placement_.fallback;
    spec.by_reference = !placement_.places.empty();
    spec.exchange.reset();
    if (options_.transport != TransportKind::kStream &&
        (!is_auto() || placement_.sent_bytes < kStreamFromBytes ||
         route_.lacks_exchange)) {
      absl::Status status = FillUnary(spec);
      if (status.ok() || !is_auto()) return status;
      // Too large for a message, perhaps.
    }
    return FillExchange(spec);
  }

  absl::Status FillUnary(CallSpec& spec) {
    OpenIfSmall(spec);
    absl::StatusOr<Pieces> pieces =
        Method::Encode(call_, options_, route_.max_message_bytes, placement_);
    if (!pieces.ok()) return pieces.status();
    spec.pieces = *std::move(pieces);
    if (wire::TotalBytes(spec.pieces) > MostRequestBytes(call_.attention)) {
      spec.opened.reset();
    }
    spec.decode = [outputs = Outputs(call_, placement_),
                   &report = report_](Fragments fragments) {
      return Method::Decode(fragments, outputs, report);
    };
    return absl::OkStatus();
  }

  // Where no bytes of tensors travel, waking the server up takes longest.
  void OpenIfSmall(CallSpec& spec) {
    if (!route_.open || !spec.by_reference || placement_.sent_bytes > 0) return;
    spec.opened = std::exchange(route_.open, nullptr)(
        Method::kPath, MostRequestBytes(call_.attention));
  }

  absl::Status FillExchange(CallSpec& spec) {
    spec.opened.reset();
    absl::StatusOr<ExchangeParts> parts = Method::EncodeExchange(
        call_, options_, WishesFor(placement_.sent_bytes, route_), placement_);
    if (!parts.ok()) return parts.status();
    spec.pieces.clear();
    spec.exchange = std::make_unique<TransferSpec>();
    spec.exchange->parts = *std::move(parts);
    spec.exchange->decode = [outputs = spec.exchange->parts.outputs,
                             &report = report_](Fragments fragments) {
      return Method::DecodeExchange(fragments, outputs, report);
    };
    return absl::OkStatus();
  }

  // Sends the bytes of what lies in `regions`, all of the host's.
  absl::Status DoWithout(std::vector<std::shared_ptr<Region>> regions,
                         const absl::Status& refusal, CallSpec& spec) {
    if (absl::IsNotFound(refusal)) {
      lesson_.refusal = UnknownRegion(refusal);
      lesson_.unknown = Named(refusal, std::move(regions));
    } else {
      lesson_.refusal = LacksRegions(refusal);
      lesson_.lacks_regions = true;
    }
    LearnThat(spec);
    placement_.SendThoseOnHost(*Method::Request::descriptor(), lesson_.refusal);
    return Fill(spec);
  }

  // Those of `regions` that the refusal names by a tensor that lies there; all
  // where it names none.
  std::vector<std::shared_ptr<Region>> Named(
      const absl::Status& refusal,
      std::vector<std::shared_ptr<Region>> regions) const {
    const auto& type = *Method::Request::descriptor();
    std::vector<std::shared_ptr<Region>> named;
    for (const wire::FieldViolation& violation :
         wire::FieldViolations(refusal)) {
      for (const absl::string_view part :
           absl::StrSplit(violation.field, '.')) {
        const auto* field = type.FindFieldByName(std::string(part));
        const RegionPlace* place =
            field == nullptr ? nullptr : placement_.Find(field->number());
        if (place != nullptr && !place->region->on_device()) {
          named.push_back(place->region);
        }
      }
    }
    if (named.empty()) return regions;
    return named;
  }

  void LearnThat(CallSpec& spec) const {
    if (!route_.learn) return;
    spec.learn = [learn = route_.learn, lesson = lesson_] { learn(lesson); };
  }

  const TensorCall call_;
  const CallOptions options_;
  Route route_;
  Report& report_;
  Placement placement_;
  Lesson lesson_;
};

template <typename Method, typename TensorCall>
absl::Status Prepare(const TensorCall& call, const CallOptions& options,
                     const Route& route, Report& report, CallSpec& spec) {
  auto preparation = std::make_unique<Preparation<Method, TensorCall>>(
      call, options, route, report);
  absl::Status status = preparation->Begin(spec);
  if (status.ok() && preparation->CanFallBack(spec)) {
    spec.fall_back = [preparation = std::move(preparation)](
                         const absl::Status& refusal, CallSpec& spec) {
      return preparation->FallBack(refusal, spec);
    };
  }
  return status;
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
