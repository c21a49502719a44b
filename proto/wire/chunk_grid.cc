#include "proto/wire/chunk_grid.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/status.h"

namespace attnd::wire {

ChunkGrid::ChunkGrid(int64_t tensor_bytes, int64_t chunk_bytes)
    : tensor_bytes_(tensor_bytes),
      chunk_bytes_(chunk_bytes),
      missing_(tensor_bytes / chunk_bytes +
               (tensor_bytes % chunk_bytes != 0 ? 1 : 0)),
      claimed_(missing_, false) {}

ByteRange ChunkGrid::Chunk(int64_t index) const {
  const int64_t offset = index * chunk_bytes_;
  return {offset, std::min(chunk_bytes_, tensor_bytes_ - offset)};
}

absl::StatusOr<bool> ChunkGrid::Claim(int64_t offset, int64_t bytes) {
  if (offset < 0 || offset >= tensor_bytes_ || offset % chunk_bytes_ != 0) {
    return FieldError(
        "chunk.offset",
        absl::StrCat("no chunk begins at ", offset, ": the tensor has ",
                     tensor_bytes_, " bytes in chunks of ", chunk_bytes_));
  }
  const int64_t index = offset / chunk_bytes_;
  const int64_t expected = Chunk(index).bytes;
  if (bytes != expected) {
    return FieldError("chunk.data",
                      absl::StrCat("has ", bytes, " bytes where the chunk at ",
                                   offset, " has ", expected));
  }
  if (claimed_[index]) return false;
  claimed_[index] = true;
  --missing_;
  return true;
}

std::vector<ByteRange> ChunkGrid::MissingRanges() const {
  std::vector<ByteRange> ranges;
  for (int64_t index = 0; index < chunks(); ++index) {
    if (claimed_[index]) continue;
    const ByteRange chunk = Chunk(index);
    if (!ranges.empty() &&
        ranges.back().offset + ranges.back().bytes == chunk.offset) {
      ranges.back().bytes += chunk.bytes;
    } else {
      ranges.push_back(chunk);
    }
  }
  return ranges;
}

absl::StatusOr<ChunkGrid::Span> ChunkGrid::Chunks(ByteRange range) const {
  if (range.offset < 0 || range.offset >= tensor_bytes_ ||
      range.offset % chunk_bytes_ != 0) {
    return FieldError("missing.ranges.offset",
                      absl::StrCat("no chunk begins at ", range.offset));
  }
  // No overflow: offset is below tensor_bytes_.
  const bool fits =
      range.bytes > 0 && range.bytes <= tensor_bytes_ - range.offset;
  const bool ends = fits && (range.bytes % chunk_bytes_ == 0 ||
                             range.offset + range.bytes == tensor_bytes_);
  if (!ends) {
    return FieldError("missing.ranges.bytes",
                      absl::StrCat("no chunk ends ", range.bytes,
                                   " bytes from ", range.offset));
  }
  const int64_t end = range.offset + range.bytes;
  return Span{range.offset / chunk_bytes_,
              end / chunk_bytes_ + (end % chunk_bytes_ != 0 ? 1 : 0)};
}

}  // namespace attnd::wire
