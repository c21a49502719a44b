#include "server/front/region_fields.h"

#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attn/v1/attention.pb.h"
#include "base/field_error.h"
#include "proto/wire/status.h"
#include "server/front/tensor_fields.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;

std::string Path(TensorId id) {
  return absl::StrCat(TensorName(id), ".region");
}

// A tensor in a region.
struct Slice {
  TensorId id;
  bool is_output = false;
  const Region* region = nullptr;
  int64_t begin = 0, end = 0;  // in bytes
};

bool Overlap(const Slice& a, const Slice& b) {
  return a.region == b.region && a.begin < b.end && b.begin < a.end;
}

class Placer {
 public:
  Placer(const RegionLookup* regions, Work& work)
      : regions_(regions), work_(work) {}

  absl::Status AddInput(TensorId id, const pb::RegionSlice& slice) {
    absl::StatusOr<RegionBytes> place =
        Place(id, slice, work_.request->input(id).bytes, /*is_output=*/false);
    if (!place.ok()) return place.status();
    work_.inputs[id] = *std::move(place);
    return absl::OkStatus();
  }

  absl::Status AddOutput(TensorId id, const pb::RegionSlice& slice) {
    absl::StatusOr<RegionBytes> place =
        Place(id, slice, work_.request->output(id).bytes, /*is_output=*/true);
    if (!place.ok()) return place.status();
    work_.placed[id] = *std::move(place);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<RegionBytes> Place(TensorId id, const pb::RegionSlice& slice,
                                    int64_t bytes, bool is_output) {
    RegionBytes place;
    if (regions_ != nullptr) place.region = regions_->Find(slice.region());
    if (place.region == nullptr) return NoSuchRegion(id);
    place.offset = slice.offset();
    const int64_t room = place.region->bytes();
    if (place.offset % kTensorAlignment != 0) {
      return FieldError(
          Path(id) + ".offset",
          absl::StrCat("must be a multiple of ", kTensorAlignment));
    }
    // Written so that no offset overflows.
    if (place.offset < 0 || bytes > room || place.offset > room - bytes) {
      return FieldError(
          Path(id), absl::StrFormat("%d bytes at offset %d are not within its "
                                    "%d bytes",
                                    bytes, place.offset, room));
    }
    work_.devices &= place.region->devices();
    if (work_.devices == 0) {
      return FieldError(Path(id),
                        "is on another device than the tensors "
                        "before it");
    }
    const Slice added = {id, is_output, place.region.get(), place.offset,
                         place.offset + bytes};
    for (const Slice& other : slices_) {
      if ((added.is_output || other.is_output) && Overlap(added, other)) {
        return FieldError(Path(id),
                          absl::StrCat("overlaps ", TensorName(other.id)));
      }
    }
    slices_.push_back(added);
    return place;
  }

  // One answer, whatever the reason: it tells nobody whose regions there are.
  static absl::Status NoSuchRegion(TensorId id) {
    constexpr absl::string_view kWhat = "no such region, or its lease is over";
    absl::Status status =
        absl::NotFoundError(absl::StrCat(Path(id), ": ", kWhat));
    wire::AddFieldViolation(Path(id), kWhat, status);
    return status;
  }

  const RegionLookup* const regions_;
  Work& work_;
  absl::InlinedVector<Slice, 6> slices_;
};

}  // namespace

absl::Status PlaceInRegions(wire::Fields message, const RegionLookup* regions,
                            Work& work) {
  const Request& request = *work.request;
  const Op op = request.spec().op;
  Placer placer(regions, work);
  for (const auto& [number, id] : InputFields(op)) {
    if (!request.input(id).present) continue;
    const auto& tensor = message.Get<pb::Tensor>(number);
    if (!tensor.has_region()) continue;
    absl::Status status = placer.AddInput(id, tensor.region());
    if (!status.ok()) return status;
  }
  for (const auto& [number, id] : OutputFields(op)) {
    if (!request.output(id).present) continue;
    const auto& output = message.Get<pb::OutputSpec>(number);
    if (!output.has_region()) continue;
    absl::Status status = placer.AddOutput(id, output.region());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attnd::server
