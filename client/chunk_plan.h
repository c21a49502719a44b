#ifndef ATTND_CLIENT_CHUNK_PLAN_H_
#define ATTND_CLIENT_CHUNK_PLAN_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/exchange_messages.h"
#include "client/messages.h"
#include "proto/wire/chunk_grid.h"

namespace attnd::client {

// Which chunks of the inputs have yet to be sent, and in what order: the
// tensors one after another, each from its front; those that a stream failed to
// send before any other. Not thread-safe.
class ChunkPlan {
 public:
  // Cuts `inputs`, whose memory outlives it, at multiples of `chunk_bytes`.
  ChunkPlan(absl::Span<const StreamedInput> inputs, int64_t chunk_bytes);
  ChunkPlan() = default;

  bool empty() const { return runs_.empty(); }
  // The next chunk; nullopt when there is none.
  std::optional<InputChunk> Next();
  // A chunk that Next gave, and that was not sent.
  void PutBack(const InputChunk& chunk);
  // Chunks that were sent and did not arrive. INTERNAL, naming the field: the
  // ranges are none, or not on the grid, or more than all there is; then
  // nothing is added.
  absl::Status AddMissing(const MissingInputs& missing);

 private:
  // Chunks [begin, end) of an input.
  struct Run {
    size_t input = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  std::optional<size_t> Find(int tensor) const;

  std::vector<StreamedInput> inputs_;
  std::vector<wire::ChunkGrid> grids_;  // of each input; claims nothing
  int64_t chunk_bytes_ = 1;
  int64_t chunks_ = 0;  // of all inputs
  std::deque<Run> runs_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CHUNK_PLAN_H_
