#include "server/transfer/outgoing.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"

namespace attnd::server {

Outgoing::Outgoing(std::shared_ptr<const WorkResult> result,
                   const PerTensor<bool>& streamed, int64_t chunk_bytes)
    : result_(std::move(result)) {
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (!streamed[id] || !result_->outputs[id]) continue;
    const auto size = static_cast<int64_t>(result_->outputs[id].span().size());
    grids_[id] = wire::ChunkGrid(size, chunk_bytes);
    bytes_ += size;
    chunks_ += grids_[id].chunks();
    if (size > 0) queue_.push_back({id, 0, grids_[id].chunks()});
  }
}

ConstHostSpan Outgoing::Bytes(TensorId tensor, wire::ByteRange range) const {
  return result_->outputs[tensor].span().subspan(range.offset, range.bytes);
}

Outgoing::Chunk Outgoing::Take() {
  Run& run = queue_.front();
  const TensorId tensor = run.tensor;
  const wire::ByteRange range = grids_[tensor].Chunk(run.next);
  if (++run.next == run.end) queue_.pop_front();
  return {tensor, range.offset, Bytes(tensor, range)};
}

void Outgoing::PutBack(const Chunk& chunk) {
  const auto size = static_cast<int64_t>(chunk.bytes.size());
  // It was taken from here, so it is on the grid.
  const auto span = grids_[chunk.tensor].Chunks({chunk.offset, size});
  queue_.push_front({chunk.tensor, span->begin, span->end});
}

absl::Status Outgoing::Repeat(const std::vector<TensorRange>& ranges) {
  for (const TensorRange& range : ranges) {
    const wire::ChunkGrid& grid = grids_[range.tensor];
    const auto span = grid.Chunks(range.range);
    if (!span.ok()) return span.status();
    repeated_ += span->end - span->begin;
    if (repeated_ > chunks_) {
      return FieldError("missing.ranges",
                        absl::StrCat("asks for more than all of the ", chunks_,
                                     " chunks a second time"));
    }
    queue_.push_back({range.tensor, span->begin, span->end});
  }
  return absl::OkStatus();
}

}  // namespace attnd::server
