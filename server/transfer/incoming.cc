#include "server/transfer/incoming.h"

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "server/work/request_bytes.h"

namespace attnd::server {

Incoming::Incoming(const Request& request, const PerTensor<bool>& streamed,
                   int64_t chunk_bytes)
    : streamed_(streamed) {
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (!streamed[id]) continue;
    const int64_t bytes = request.input(id).bytes;
    grids_[id] = wire::ChunkGrid(bytes, chunk_bytes);
    offsets_[id] = buffer_bytes_;
    buffer_bytes_ += AlignedTensorBytes(bytes);
    bytes_ += bytes;
    chunks_ += grids_[id].chunks();
  }
  missing_ = chunks_;
}

absl::StatusOr<bool> Incoming::Claim(TensorId tensor, int64_t offset,
                                     int64_t bytes) {
  if (!streamed_[tensor]) {
    return FieldError("chunk.tensor",
                      absl::StrCat(TensorName(tensor), " is not streamed"));
  }
  if (++seen_ > 2 * chunks_) {
    return FieldError("chunk", absl::StrCat("one of more than twice the ",
                                            chunks_, " chunks there are"));
  }
  absl::StatusOr<bool> is_new = grids_[tensor].Claim(offset, bytes);
  if (is_new.ok() && *is_new) --missing_;
  return is_new;
}

std::vector<TensorRange> Incoming::MissingRanges() const {
  std::vector<TensorRange> ranges;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    for (const wire::ByteRange& range : grids_[id].MissingRanges()) {
      ranges.push_back({id, range});
    }
  }
  return ranges;
}

}  // namespace attnd::server
