#include "kernels/cuda/team/block_copies.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cuda/device/pinning.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

bool IsEmpty(const BlockCopy& copy) {
  return copy.rows == 0 || copy.row_bytes == 0;
}

// Whether rows follow each other without a gap.
bool IsDense(const BlockCopy& copy) {
  return copy.rows == 1 ||
         (copy.from_pitch == copy.row_bytes && copy.to_pitch == copy.row_bytes);
}

// Whether CUDA copies such rows together: they lie apart, and not too far.
bool HasPitches(const BlockCopy& copy) {
  const auto [least, most] = std::minmax(copy.from_pitch, copy.to_pitch);
  return least >= copy.row_bytes && most <= std::numeric_limits<int>::max();
}

// Rows [first, first + rows) of a block.
BlockCopy RowsOf(BlockCopy copy, int64_t first, int64_t rows) {
  copy.from += first * copy.from_pitch;
  copy.to += first * copy.to_pitch;
  copy.rows = rows;
  return copy;
}

// How many rows that begin at `host` end in the piece of memory where the first
// of them begins.
int64_t RowsInPiece(const std::byte* host, int64_t row_bytes, int64_t pitch) {
  const int64_t left =
      kPinnedPieceBytes -
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(host) %
                           static_cast<uintptr_t>(kPinnedPieceBytes));
  return left < row_bytes ? 0 : (left - row_bytes) / pitch + 1;
}

absl::Status CopyRows(const BlockCopy& copy, cudaMemcpyKind kind,
                      cudaStream_t stream) {
  return Broken(ToStatus(
      cudaMemcpy2DAsync(copy.to, copy.to_pitch, copy.from, copy.from_pitch,
                        copy.row_bytes, copy.rows, kind, stream),
      "copy of rows"));
}

// Between host and device. `row` copies one that CopyRows cannot, as it may lie
// in two pieces.
template <class CopyRun>
absl::Status CopyHostBlock(const BlockCopy& copy, cudaMemcpyKind kind,
                           CopyRun run, cudaStream_t stream) {
  if (IsEmpty(copy)) return absl::OkStatus();
  if (IsDense(copy)) return run(copy, copy.rows * copy.row_bytes);
  const bool together = HasPitches(copy);
  for (int64_t first = 0; first < copy.rows;) {
    BlockCopy part = RowsOf(copy, first, 1);
    if (together) {
      const int64_t rows =
          kind == cudaMemcpyHostToDevice
              ? RowsInPiece(part.from, copy.row_bytes, copy.from_pitch)
              : RowsInPiece(part.to, copy.row_bytes, copy.to_pitch);
      part.rows = std::clamp<int64_t>(rows, 1, copy.rows - first);
    }
    absl::Status status = part.rows == 1 ? run(part, copy.row_bytes)
                                         : CopyRows(part, kind, stream);
    if (!status.ok()) return status;
    first += part.rows;
  }
  return absl::OkStatus();
}

// One run of bytes. Where memory is reachable a plain copy is enough, which
// leaves it to the driver's maps, as pools have them, how it goes.
absl::Status PullRun(const BlockCopy& copy, int64_t bytes, int from, int to,
                     bool direct, cudaStream_t stream) {
  const cudaError_t error =
      direct ? cudaMemcpyAsync(copy.to, copy.from, bytes,
                               cudaMemcpyDeviceToDevice, stream)
             : cudaMemcpyPeerAsync(copy.to, to, copy.from, from, bytes, stream);
  return Broken(ToStatus(error, "copy from another device"));
}

// Rows that lie apart, by way of the host.
absl::Status PullRowsIndirectly(const BlockCopy& copy, int from, int to,
                                cudaStream_t stream) {
  const auto width = static_cast<size_t>(copy.row_bytes);
  const auto rows = static_cast<size_t>(copy.rows);
  cudaMemcpy3DPeerParms parms = {};
  parms.srcDevice = from;
  parms.srcPtr = {const_cast<std::byte*>(copy.from),
                  static_cast<size_t>(copy.from_pitch), width, rows};
  parms.dstDevice = to;
  parms.dstPtr = {copy.to, static_cast<size_t>(copy.to_pitch), width, rows};
  parms.extent = {width, rows, 1};
  return Broken(ToStatus(cudaMemcpy3DPeerAsync(&parms, stream),
                         "copy from another device"));
}

// Runs of bytes from one device to another.
struct Batch {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<size_t> bytes;
};

absl::Status EnqueueBatch(const Batch& batch, int from, int to,
                          cudaStream_t stream) {
  const size_t count = batch.bytes.size();
#if CUDART_VERSION >= 13000
  if (count > 1) {
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.srcLocHint = {.type = cudaMemLocationTypeDevice, .id = from};
    attributes.dstLocHint = {.type = cudaMemLocationTypeDevice, .id = to};
    size_t first = 0;
    return Broken(
        ToStatus(cudaMemcpyBatchAsync(batch.to.data(), batch.from.data(),
                                      batch.bytes.data(), count, &attributes,
                                      &first, 1, stream),
                 "copies from another device"));
  }
#endif
  for (size_t i = 0; i < count; ++i) {
    absl::Status status =
        PullRun({.from = static_cast<const std::byte*>(batch.from[i]),
                 .to = static_cast<std::byte*>(batch.to[i])},
                static_cast<int64_t>(batch.bytes[i]), from, to,
                /*direct=*/true, stream);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UploadBlock(const BlockCopy& copy, cudaStream_t stream) {
  return CopyHostBlock(
      copy, cudaMemcpyHostToDevice,
      [stream](const BlockCopy& run, int64_t bytes) {
        return CopyToDevice({run.from, static_cast<size_t>(bytes)}, run.to,
                            stream);
      },
      stream);
}

absl::Status DownloadBlock(const BlockCopy& copy, cudaStream_t stream) {
  return CopyHostBlock(
      copy, cudaMemcpyDeviceToHost,
      [stream](const BlockCopy& run, int64_t bytes) {
        return CopyToHost(run.from, {run.to, static_cast<size_t>(bytes)},
                          stream);
      },
      stream);
}

absl::Status PullBlock(const BlockCopy& copy, int from, int to, bool direct,
                       cudaStream_t stream) {
  if (IsEmpty(copy)) return absl::OkStatus();
  if (IsDense(copy)) {
    return PullRun(copy, copy.rows * copy.row_bytes, from, to, direct, stream);
  }
  if (HasPitches(copy)) {
    return direct ? CopyRows(copy, cudaMemcpyDeviceToDevice, stream)
                  : PullRowsIndirectly(copy, from, to, stream);
  }
  for (int64_t row = 0; row < copy.rows; ++row) {
    absl::Status status =
        PullRun(RowsOf(copy, row, 1), copy.row_bytes, from, to, direct, stream);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PullBlocks(absl::Span<const BlockCopy> copies, int from, int to,
                        bool direct, cudaStream_t stream) {
  Batch batch;
  for (const BlockCopy& copy : copies) {
    if (IsEmpty(copy)) continue;
    if (direct && IsDense(copy)) {
      batch.to.push_back(copy.to);
      batch.from.push_back(copy.from);
      batch.bytes.push_back(static_cast<size_t>(copy.rows * copy.row_bytes));
      continue;
    }
    absl::Status status = PullBlock(copy, from, to, direct, stream);
    if (!status.ok()) return status;
  }
  return EnqueueBatch(batch, from, to, stream);
}

}  // namespace attnd::cuda
