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

// A slice whose region is there.
struct Placed {
  const RegionSlice* slice = nullptr;
  const Region* region = nullptr;
  int64_t begin = 0, end = 0;  // in bytes
};

bool Overlap(const Placed& a, const Placed& b) {
  return a.region == b.region && a.begin < b.end && b.begin < a.end;
}

class Placer {
 public:
  Placer(const RegionLookup* regions, Work& work)
      : regions_(regions), work_(work) {}

  absl::Status Add(const RegionSlice& slice) {
    const TensorId id = slice.tensor;
    const int64_t bytes = slice.is_output ? work_.request->output(id).bytes
                                          : work_.request->input(id).bytes;
    absl::StatusOr<RegionBytes> place = Place(slice, bytes);
    if (!place.ok()) return place.status();
    if (slice.is_output) {
      work_.placed[id] = *std::move(place);
    } else {
      work_.inputs[id] = *std::move(place);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<RegionBytes> Place(const RegionSlice& slice, int64_t bytes) {
    const TensorId id = slice.tensor;
    RegionBytes place;
    if (regions_ != nullptr) place.region = regions_->Find(*slice.region);
    if (place.region == nullptr) return NoSuchRegion(id);
    place.offset = slice.offset;
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
    const Placed added = {&slice, place.region.get(), place.offset,
                          place.offset + bytes};
    for (const Placed& other : placed_) {
      if ((slice.is_output || other.slice->is_output) &&
          Overlap(added, other)) {
        return FieldError(
            Path(id),
            absl::StrCat("overlaps ", TensorName(other.slice->tensor)));
      }
    }
    placed_.push_back(added);
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
  absl::InlinedVector<Placed, 6> placed_;
};

}  // namespace

RegionSlices SlicesOf(wire::Fields message, const Request& request) {
  const Op op = request.spec().op;
  RegionSlices slices;
  const auto add = [&slices](TensorId id, bool is_output,
                             const pb::RegionSlice& slice) {
    slices.push_back({id, is_output, &slice.region(), slice.offset()});
  };
  for (const auto& [number, id] : InputFields(op)) {
    if (!request.input(id).present) continue;
    const auto& tensor = message.Get<pb::Tensor>(number);
    if (tensor.has_region()) add(id, /*is_output=*/false, tensor.region());
  }
  for (const auto& [number, id] : OutputFields(op)) {
    if (!request.output(id).present) continue;
    const auto& output = message.Get<pb::OutputSpec>(number);
    if (output.has_region()) add(id, /*is_output=*/true, output.region());
  }
  return slices;
}

absl::Status PlaceInRegions(const RegionSlices& slices,
                            const RegionLookup* regions, Work& work) {
  Placer placer(regions, work);
  for (const RegionSlice& slice : slices) {
    if (absl::Status status = placer.Add(slice); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attnd::server
