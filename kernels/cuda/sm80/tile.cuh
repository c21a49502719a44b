#ifndef ATTND_KERNELS_CUDA_SM80_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM80_TILE_CUH_

// Tiles of 16-bit elements in shared memory: [rows, kDim], every row padded to
// whole lines of 128 bytes, whose eight 16-byte chunks are permuted by the row,
// so that neither cp.async nor ldmatrix meets a bank conflict.

#include <cstdint>
#include <cstring>

#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm80 {

template <int kDim>
struct TileLayout {
  static_assert(kDim % 16 == 0);
  static constexpr int kChunks = kDim / 8;  // of 16 bytes, that hold elements
  static constexpr int kRowBytes = (kDim + 63) / 64 * 128;

  static constexpr int Bytes(int rows) { return rows * kRowBytes; }
  // Bytes from the start of the tile.
  __device__ static int Offset(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
  }
  // The address `rows` further down, from an `address` that Offset gave for a
  // row below `rows`; `rows` is 0 or a multiple of a power of two above that
  // row.
  __device__ static uint32_t RowsOn(uint32_t address, int rows) {
    return (address ^ ((rows & 7) << 4)) + rows * kRowBytes;
  }
  // The address `chunks` further in the row of an `address` that Offset gave
  // for chunk 0 or 1, in a tile aligned to 128 bytes; `chunks` is even. It
  // costs one instruction at most.
  __device__ static uint32_t Step(uint32_t address, int chunks) {
    return (address ^ ((chunks & 7) << 4)) + ((chunks >> 3) << 7);
  }
};

// Eight elements of which the first `count` are read, the others 0.
template <class T>
__device__ uint4 LoadChunkSlowly(const T* from, int count) {
  alignas(16) uint16_t elements[8] = {};
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) elements[i] = bits[i];
  }
  uint4 chunk;
  memcpy(&chunk, elements, 16);
  return chunk;
}

// Threads that copy a row: a power of two, so that each keeps to its chunk.
template <int kDim>
constexpr int kThreadsAcross = kDim <= 64    ? 8
                               : kDim <= 128 ? 16
                                             : 32;

// Whether a tile is all that will be read of these rows.
enum class Reads { kAgain, kOnce };

// Starts copying rows [0, kRows), of kDim elements and aligned to 16 bytes, to
// a tile. `thread` is one of kThreads that do so together. To be committed and
// waited for as cp.async.
template <int kDim, int kRows, int kThreads, Reads kReads, class T>
__device__ void LoadWholeTile(uint32_t tile, const T* from, int64_t stride,
                              int thread) {
  using Layout = TileLayout<kDim>;
  constexpr int kAcross = kThreadsAcross<kDim>;
  constexpr int kStep = kThreads / kAcross;  // rows
  const int chunk = thread % kAcross, first = thread / kAcross;
  if (chunk >= Layout::kChunks) return;
  const T* source = from + first * stride + 8 * chunk;
  const uint32_t to = tile + Layout::Offset(first, chunk);
#pragma unroll
  for (int i = 0; i < kRows / kStep; ++i) {
    if constexpr (kReads == Reads::kOnce) {
      ptx::CpAsync16Once(Layout::RowsOn(to, i * kStep), source);
    } else {
      ptx::CpAsync16(Layout::RowsOn(to, i * kStep), source);
    }
    source += kStep * stride;
  }
}

// The same of `dim` elements a row, aligned or not; rows from `valid` on, and
// columns from `dim` on, become 0.
template <int kDim, int kRows, int kThreads, Reads kReads = Reads::kAgain,
          class T>
__device__ void LoadTile(uint32_t tile, const T* from, int64_t stride,
                         int valid, int dim, int thread) {
  using Layout = TileLayout<kDim>;
  constexpr int kAcross = kThreadsAcross<kDim>;
  constexpr int kStep = kThreads / kAcross;  // rows
  static_assert(kThreads % kAcross == 0);
  static_assert(kRows % kStep == 0);
  const int chunk = thread % kAcross;
  if (chunk >= Layout::kChunks) return;
  const int first = thread / kAcross;
  const int count = min(max(dim - 8 * chunk, 0), 8);
  const T* source = from + first * stride + 8 * chunk;
  const uint32_t to = tile + Layout::Offset(first, chunk);
  if (!IsAligned(from, stride)) {
#pragma unroll 1
    for (int row = first; row < kRows; row += kStep) {
      const uint4 data = LoadChunkSlowly(source, row < valid ? count : 0);
      ptx::StoreShared16(tile + Layout::Offset(row, chunk), data);
      source += kStep * stride;
    }
  } else if (valid >= kRows && count == 8) {
    LoadWholeTile<kDim, kRows, kThreads, kReads>(tile, from, stride, thread);
  } else {
#pragma unroll 1
    for (int row = first; row < kRows; row += kStep) {
      const bool inside = row < valid && count > 0;
      ptx::CpAsync16(tile + Layout::Offset(row, chunk), inside ? source : from,
                     inside ? 2 * count : 0);
      source += kStep * stride;
    }
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_TILE_CUH_
