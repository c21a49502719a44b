#include "client/chunk_plan.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/bad_response.h"

namespace attnd::client {

ChunkPlan::ChunkPlan(absl::Span<const StreamedInput> inputs,
                     int64_t chunk_bytes)
    : inputs_(inputs.begin(), inputs.end()), chunk_bytes_(chunk_bytes) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto& grid = grids_.emplace_back(
        static_cast<int64_t>(inputs_[i].bytes.size()), chunk_bytes);
    chunks_ += grid.chunks();
    if (grid.chunks() > 0) runs_.push_back({i, 0, grid.chunks()});
  }
}

std::optional<InputChunk> ChunkPlan::Next() {
  if (runs_.empty()) return std::nullopt;
  Run& run = runs_.front();
  const StreamedInput& input = inputs_[run.input];
  const wire::ByteRange range = grids_[run.input].Chunk(run.begin);
  const InputChunk chunk = {input.field, range.offset,
                            input.bytes.substr(range.offset, range.bytes)};
  if (++run.begin == run.end) runs_.pop_front();
  return chunk;
}

void ChunkPlan::PutBack(const InputChunk& chunk) {
  const int64_t index = chunk.offset / chunk_bytes_;
  runs_.push_front({*Find(chunk.tensor), index, index + 1});
}

absl::Status ChunkPlan::AddMissing(const MissingInputs& missing) {
  std::deque<Run> runs = runs_;
  int64_t chunks = 0;
  for (const auto& [tensor, range] : missing.ranges) {
    const std::optional<size_t> input = Find(tensor);
    if (!input.has_value()) {
      return BadResponse("missing.ranges.tensor",
                         absl::StrCat("no streamed input has number ", tensor));
    }
    const auto span = grids_[*input].Chunks(range);
    if (!span.ok()) {
      return BadResponse("missing.ranges", span.status().message());
    }
    runs.push_back({*input, span->begin, span->end});
    chunks += span->end - span->begin;
    if (chunks > chunks_) {
      return BadResponse("missing.ranges", "more than all there is");
    }
  }
  if (chunks == 0) return BadResponse("missing.ranges", "empty");
  runs_.swap(runs);
  return absl::OkStatus();
}

std::optional<size_t> ChunkPlan::Find(int tensor) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].field == tensor) return i;
  }
  return std::nullopt;
}

}  // namespace attnd::client
