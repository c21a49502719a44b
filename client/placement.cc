#include "client/placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/call_tensors.h"
#include "client/region_allocator.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

void AddSent(int64_t bytes, Placement& placement) {
  constexpr int64_t kMost = int64_t{1} << 62;
  int64_t& total = placement.sent_bytes;
  total = bytes > kMost - total ? kMost : total + bytes;
}

// One reason is enough: of others it is the same, as a rule.
void Explain(const std::string& tensor, absl::string_view reason,
             Placement& placement) {
  if (!placement.fallback.empty()) return;
  placement.fallback = absl::StrCat(tensor, ": ", reason);
}

// Goes through a call's tensors and keeps the first thing wrong.
class Placer {
 public:
  Placer(const google::protobuf::Descriptor& request, const RegionRules& rules)
      : request_(request), rules_(rules) {}

  void Input(int field, const ConstTensor& tensor) {
    Take(field, tensor.dtype, tensor.shape, tensor.data);
  }
  void Wanted(int field, const Tensor& tensor, const std::vector<int64_t>&) {
    Take(field, tensor.dtype, tensor.shape, tensor.data);
  }
  absl::StatusOr<Placement> Result() && {
    if (!status_.ok()) return status_;
    return std::move(placement_);
  }

 private:
  // Why a tensor does not go by reference; OK: it does.
  using Reason = absl::Status;

  void Take(int field, DType dtype, const std::vector<int64_t>& shape,
            const void* data) {
    if (!status_.ok() || shape.empty()) return;
    // Encoding says what is wrong with it.
    const int64_t bytes = TensorBytes("", dtype, shape).value_or(0);
    if (bytes == 0 || data == nullptr) return Send(bytes);
    const RegionMap* regions = rules_.regions.get();
    const RegionMap::Entry* device =
        regions == nullptr ? nullptr : regions->FindDevice(data, bytes);
    const RegionMap::Entry* entry = device;
    if (device == nullptr && regions != nullptr) entry = regions->Find(data);
    if (entry != nullptr) Keep(entry->region);
    const Reason reason = WhyNot(entry, data, bytes);
    if (reason.ok()) {
      placement_.places[field] = {entry->region, Offset(*entry, data), bytes};
      return;
    }
    const std::string& name = request_.FindFieldByNumber(field)->name();
    if (device != nullptr) {
      Fail(name, reason, ", and it is on a device: there are no bytes to send");
    } else if (rules_.transport == TransportKind::kRegion) {
      Fail(name, reason, "");
    } else {
      if (entry != nullptr && rules_.transport == TransportKind::kAuto) {
        Explain(name, reason.message(), placement_);
      }
      Send(bytes);
    }
  }

  void Send(int64_t bytes) { AddSent(bytes, placement_); }

  static int64_t Offset(const RegionMap::Entry& entry, const void* data) {
    return static_cast<const char*>(data) -
           static_cast<const char*>(entry.region->data());
  }

  Reason WhyNot(const RegionMap::Entry* entry, const void* data,
                int64_t bytes) {
    if (entry == nullptr) {
      return absl::InvalidArgumentError("lies in no region of this client's");
    }
    if (rules_.transport == TransportKind::kUnary ||
        rules_.transport == TransportKind::kStream) {
      return absl::InvalidArgumentError("is to travel by its bytes");
    }
    const Region& region = *entry->region;
    const int64_t offset = Offset(*entry, data);
    if (offset < 0 || bytes > region.bytes() - offset) {
      return absl::InvalidArgumentError("lies in its region in part");
    }
    if (offset % kRegionAlignment != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("lies at ", offset, " of its region, no multiple of ",
                       kRegionAlignment));
    }
    // Of what is on a device the server is asked in any case, and of what must
    // go by reference: there is nothing else to do.
    if (!region.on_device() && rules_.transport == TransportKind::kAuto) {
      if (!rules_.refusal.empty()) {
        return absl::FailedPreconditionError(rules_.refusal);
      }
      if (!entry->refusal.empty()) {
        return absl::FailedPreconditionError(entry->refusal);
      }
    }
    return Alive(entry->region);
  }

  // Asks the system once for each region.
  Reason Alive(const std::shared_ptr<Region>& region) {
    const auto known =
        std::find_if(alive_.begin(), alive_.end(),
                     [&](const auto& r) { return r.first == region.get(); });
    if (known != alive_.end()) return known->second;
    absl::Status status = region->status();
    if (!status.ok()) {
      status = absl::FailedPreconditionError(
          absl::StrCat("its region is not leased: ", status.message()));
    }
    return alive_.emplace_back(region.get(), status).second;
  }

  void Keep(const std::shared_ptr<Region>& region) {
    std::vector<std::shared_ptr<Region>>& kept = placement_.regions;
    if (std::find(kept.begin(), kept.end(), region) == kept.end()) {
      kept.push_back(region);
    }
  }

  void Fail(const std::string& name, const Reason& reason, const char* also) {
    const std::string text = absl::StrCat(reason.message(), also);
    status_ = absl::Status(reason.code(), absl::StrCat(name, ": ", text));
    wire::AddFieldViolation(name, text, status_);
  }

  const google::protobuf::Descriptor& request_;
  const RegionRules& rules_;
  Placement placement_;
  std::vector<std::pair<const Region*, absl::Status>> alive_;
  absl::Status status_;
};

template <typename Request, typename Call>
absl::StatusOr<Placement> PlaceCall(const Call& call,
                                    const RegionRules& rules) {
  Placer placer(*Request::descriptor(), rules);
  VisitTensors(call, placer);
  return std::move(placer).Result();
}

}  // namespace

std::vector<std::shared_ptr<Region>> Placement::Used(bool on_device) const {
  std::vector<std::shared_ptr<Region>> used;
  for (const auto& [field, place] : places) {
    if (place.region->on_device() != on_device) continue;
    if (std::find(used.begin(), used.end(), place.region) == used.end()) {
      used.push_back(place.region);
    }
  }
  return used;
}

void Placement::SendThoseOnHost(const google::protobuf::Descriptor& request,
                                const std::string& reason) {
  for (auto next = places.begin(); next != places.end();) {
    const auto& [field, place] = *next;
    if (place.region->on_device()) {
      ++next;
      continue;
    }
    AddSent(place.bytes, *this);
    Explain(request.FindFieldByNumber(field)->name(), reason, *this);
    next = places.erase(next);
  }
}

absl::StatusOr<Placement> Place(const ForwardCall& call,
                                const RegionRules& rules) {
  return PlaceCall<::attn::v1::ForwardRequest>(call, rules);
}

absl::StatusOr<Placement> Place(const BackwardCall& call,
                                const RegionRules& rules) {
  return PlaceCall<::attn::v1::BackwardRequest>(call, rules);
}

}  // namespace attnd::client
