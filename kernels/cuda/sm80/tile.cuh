#ifndef ATTND_KERNELS_CUDA_SM80_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM80_TILE_CUH_

// Tiles of 16-bit elements in shared memory: [rows, kDim], every row padded to
// whole lines of 128 bytes. Within a line, the eight 16-byte chunks are
// permuted by the row (a swizzle), so that neither cp.async nor ldmatrix meets
// a bank conflict.

#include <cstdint>
#include <cstring>

#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm80 {

template <int kDim>
struct TileLayout {
  static_assert(kDim % 16 == 0);
  // Chunks of 16 bytes that hold a row's elements; the rest is padding.
  static constexpr int kChunks = kDim / 8;
  static constexpr int kRowBytes = (kDim + 63) / 64 * 128;

  static constexpr int Bytes(int rows) { return rows * kRowBytes; }
  // Where a row's chunk is, in bytes from the start of the tile.
  __device__ static int Offset(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
  }
  // The address `rows` rows further down, for an `address` that Offset gave for
  // row r; `rows` is a multiple of a power of two above r, so that the two have
  // no bit in common and the swizzle changes by one xor.
  __device__ static uint32_t RowsOn(uint32_t address, int rows) {
    return (address ^ ((rows & 7) << 4)) + rows * kRowBytes;
  }
  // The address `chunks` chunks further along the row, for an `address` that
  // Offset gave for chunk 0 or 1, in a tile aligned to 128 bytes; `chunks` is
  // even. It costs one instruction at most.
  __device__ static uint32_t Step(uint32_t address, int chunks) {
    return (address ^ ((chunks & 7) << 4)) + ((chunks >> 3) << 7);
  }
};

// Eight elements: the first `count` are read, the others are 0. `from` needs no
// alignment beyond an element's.
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

// How many neighbouring threads copy a row together, a chunk each or none. It
// is a power of two, so that a thread's chunk is the same in all its rows.
template <int kDim>
constexpr int kThreadsAcross = kDim <= 64    ? 8
                               : kDim <= 128 ? 16
                                             : 32;

// Whether these rows will be read again soon: what is read once should leave
// the L2 cache first.
enum class Reads { kAgain, kOnce };

// Starts copying `from`, [kRows, kDim] with `stride` elements from row to row
// and rows aligned to 16 bytes, to a tile. `thread` is one of kThreads that
// copy it together. The copies are cp.async: the caller commits and waits for
// them.
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

// The same for rows of `dim` elements, aligned or not. Rows from `valid` on and
// columns from `dim` on are not read and become 0.
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
