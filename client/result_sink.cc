#include "client/result_sink.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/bad_response.h"
#include "proto/wire/status.h"

namespace attnd::client {

ResultSink::ResultSink(absl::Span<const Output> outputs, int64_t chunk_bytes) {
  for (const Output& output : outputs) {
    if (!output.streamed) continue;
    wire::ChunkGrid grid(output.bytes, chunk_bytes);
    missing_ += grid.missing();
    results_.push_back({output.field, static_cast<char*>(output.tensor.data),
                        std::move(grid)});
  }
}

absl::StatusOr<char*> ResultSink::Claim(const ResultChunk& chunk) {
  for (Result& result : results_) {
    if (result.tensor != chunk.tensor) continue;
    const absl::StatusOr<bool> fresh =
        result.grid.Claim(chunk.offset, chunk.bytes);
    if (!fresh.ok()) {
      const auto violations = wire::FieldViolations(fresh.status());
      return BadResponse(violations.at(0).field, violations.at(0).description);
    }
    if (!*fresh) return nullptr;
    --missing_;
    return result.data + chunk.offset;
  }
  return BadResponse(
      "chunk.tensor",
      absl::StrCat("no streamed result has number ", chunk.tensor));
}

std::vector<TensorRange> ResultSink::Missing() const {
  std::vector<TensorRange> missing;
  for (const Result& result : results_) {
    for (const wire::ByteRange& range : result.grid.MissingRanges()) {
      missing.push_back({result.tensor, range});
    }
  }
  return missing;
}

}  // namespace attnd::client
