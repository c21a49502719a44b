#ifndef ATTND_PROTO_WIRE_CHUNK_GRID_H_
#define ATTND_PROTO_WIRE_CHUNK_GRID_H_

// How an Exchange cuts a tensor into chunks, and which of them are there. Both
// ends keep one for each tensor that they receive. No gRPC in here.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace attnd::wire {

// What chunks may be granted: powers of two.
inline constexpr int64_t kMinChunkBytes = int64_t{64} << 10;
inline constexpr int64_t kMaxChunkBytes = int64_t{4} << 20;

// Bytes of a tensor.
struct ByteRange {
  int64_t offset = 0;
  int64_t bytes = 0;

  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Chunk c of a tensor is its bytes from c * chunk_bytes on, as many or what is
// left. Not thread-safe.
class ChunkGrid {
 public:
  ChunkGrid() = default;  // of no chunks
  // `tensor_bytes` >= 0, `chunk_bytes` > 0.
  ChunkGrid(int64_t tensor_bytes, int64_t chunk_bytes);

  int64_t chunks() const { return static_cast<int64_t>(claimed_.size()); }
  // Chunk `index`, from 0 to chunks() - 1.
  ByteRange Chunk(int64_t index) const;

  // Marks a chunk as being there. True: it was not before. INVALID_ARGUMENT: no
  // chunk begins at `offset`, or it has not as many `bytes`; names the field.
  absl::StatusOr<bool> Claim(int64_t offset, int64_t bytes);
  // Chunks that nobody has claimed.
  int64_t missing() const { return missing_; }
  // Their bytes, neighbours together, in order.
  std::vector<ByteRange> MissingRanges() const;

  // The chunks that `range` is made of, first and one past the last.
  // INVALID_ARGUMENT: it does not begin and end where chunks do, or is empty;
  // names the field.
  struct Span {
    int64_t begin = 0;
    int64_t end = 0;
  };
  absl::StatusOr<Span> Chunks(ByteRange range) const;

 private:
  int64_t tensor_bytes_ = 0;
  int64_t chunk_bytes_ = 1;
  int64_t missing_ = 0;
  std::vector<bool> claimed_;
};

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_CHUNK_GRID_H_
