#ifndef ATTND_CLIENT_RESULT_SINK_H_
#define ATTND_CLIENT_RESULT_SINK_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/exchange_messages.h"
#include "client/messages.h"
#include "proto/wire/chunk_grid.h"

namespace attnd::client {

// Where chunks of the results go, and which of them have come. Not thread-safe;
// it is for copying to happen elsewhere that Claim does not copy.
class ResultSink {
 public:
  // Of the streamed ones of `outputs`, whose memory outlives it.
  ResultSink(absl::Span<const Output> outputs, int64_t chunk_bytes);
  ResultSink() = default;

  // Where the chunk's bytes belong; null when it has come before. INTERNAL,
  // naming the field: no such tensor, or no such chunk of it.
  absl::StatusOr<char*> Claim(const ResultChunk& chunk);
  // Whether each chunk has been claimed.
  bool complete() const { return missing_ == 0; }
  std::vector<TensorRange> Missing() const;

 private:
  struct Result {
    int tensor = 0;
    char* data = nullptr;
    wire::ChunkGrid grid;
  };

  std::vector<Result> results_;
  int64_t missing_ = 0;  // chunks
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_RESULT_SINK_H_
