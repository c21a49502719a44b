#ifndef ATTND_PROTO_WIRE_GRPC_BYTES_H_
#define ATTND_PROTO_WIRE_GRPC_BYTES_H_

// Between the codec's views and gRPC's buffers, without copying tensors.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/wire/codec.h"

namespace attnd::wire {

// A received message: what Decode reads. Owns gRPC's slices; its views stay
// where they are when it is moved. Not thread-safe.
class ReceivedBytes {
 public:
  ReceivedBytes() = default;
  // Takes the slices of `buffer`, which is cleared. One that was never filled
  // is an empty message.
  explicit ReceivedBytes(grpc::ByteBuffer& buffer);
  ~ReceivedBytes() { Release(); }
  ReceivedBytes(ReceivedBytes&& other) noexcept { *this = std::move(other); }
  ReceivedBytes& operator=(ReceivedBytes&& other) noexcept;

  // Valid until Release or destruction.
  absl::Span<const absl::string_view> fragments() const { return fragments_; }

  // Gives the memory back to gRPC, and to its quota, now. Idempotent.
  void Release();

 private:
  // Holds the last references: dropping one on a thread of ours can make gRPC
  // reclaim memory, which crashes (1.51) unless it is ByteBuffer that drops it.
  grpc::ByteBuffer buffer_;
  std::vector<grpc::Slice> slices_;
  std::vector<absl::string_view> fragments_;
};

// What is copied next to our own bytes instead of borrowed, because counting
// references costs more: pieces below the first, and whole messages up to the
// second, which become a single slice.
inline constexpr int64_t kCopiedPieceBytes = 1024;
inline constexpr int64_t kCopiedMessageBytes = 8192;

// `pieces` as one message whose larger borrowed pieces are the caller's memory.
// `release` (may be null) runs exactly once, as soon as gRPC has dropped the
// last reference to it: before this returns when nothing is borrowed, else on
// any thread, possibly inside gRPC, so that it must neither block nor call
// gRPC.
grpc::ByteBuffer ToByteBuffer(absl::Span<const Piece> pieces,
                              absl::AnyInvocable<void()> release);

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_GRPC_BYTES_H_
