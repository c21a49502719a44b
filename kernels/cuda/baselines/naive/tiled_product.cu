// The plain product, for machines without cuBLAS and for what cuBLAS does not
// take.

#include <algorithm>

#include "kernels/cuda/baselines/naive/product.h"
#include "kernels/cuda/tile/element.cuh"

namespace attnd::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;      // rows, and columns, of a tile of C
constexpr int kDepth = 16;     // how much of k is in shared memory at a time
constexpr int kPerThread = 4;  // rows, and columns, of C that a thread has
// Floats from one line of a tile to the next: padded, and a multiple of float4.
constexpr int kPitch = kTile + 4;

// Tiles of A and B in shared memory, which all threads write and read. They are
// [k, row] and [k, column], so that a thread reads its four rows, or columns,
// at once.
struct Tiles {
  alignas(16) float a[kDepth][kPitch];
  alignas(16) float b[kDepth][kPitch];
};

// Loads rows of A, or of a transposed B: to[k][row] = from[row0 + row][k0 + k].
// What is past `rows` or `k` becomes 0. `ld` is how many elements `from`'s rows
// are apart.
template <class T>
__device__ void LoadRows(const T* from, int64_t ld, int64_t row0, int64_t rows,
                         int64_t k0, int64_t k, float (*to)[kPitch]) {
  for (int e = threadIdx.x; e < kTile * kDepth; e += kThreads) {
    const int row = e / kDepth, depth = e % kDepth;
    const bool inside = row0 + row < rows && k0 + depth < k;
    to[depth][row] =
        inside ? ToFloat(from[(row0 + row) * ld + k0 + depth]) : 0.0f;
  }
}

// Loads rows of B, or of a transposed A, likewise:
// to[k][column] = from[k0 + k][column0 + column].
template <class T>
__device__ void LoadDepth(const T* from, int64_t ld, int64_t column0,
                          int64_t columns, int64_t k0, int64_t k,
                          float (*to)[kPitch]) {
  for (int e = threadIdx.x; e < kTile * kDepth; e += kThreads) {
    const int depth = e / kTile, column = e % kTile;
    const bool inside = column0 + column < columns && k0 + depth < k;
    to[depth][column] =
        inside ? ToFloat(from[(k0 + depth) * ld + column0 + column]) : 0.0f;
  }
}

// Adds the tiles' product to `acc`, at the thread's rows and columns.
__device__ void Multiply(const Tiles& tiles, int row, int column,
                         float (&acc)[kPerThread][kPerThread]) {
#pragma unroll
  for (int depth = 0; depth < kDepth; ++depth) {
    const float4 a4 = *reinterpret_cast<const float4*>(&tiles.a[depth][row]);
    const float4 b4 = *reinterpret_cast<const float4*>(&tiles.b[depth][column]);
    const float a[kPerThread] = {a4.x, a4.y, a4.z, a4.w};
    const float b[kPerThread] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) acc[i][j] += a[i] * b[j];
  }
}

// Computes the tile of C at row m0 and column n0, for one of the products.
template <class T, class C>
__device__ void ComputeTile(const Product& p, const T* a, const T* b, C* c,
                            int64_t m0, int64_t n0, Tiles& tiles) {
  const int row = threadIdx.x / (kTile / kPerThread) * kPerThread;
  const int column = threadIdx.x % (kTile / kPerThread) * kPerThread;
  float acc[kPerThread][kPerThread] = {};
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    if (p.a_transposed) {
      LoadDepth(a, p.lda, m0, p.m, k0, p.k, tiles.a);
    } else {
      LoadRows(a, p.lda, m0, p.m, k0, p.k, tiles.a);
    }
    if (p.b_transposed) {
      LoadRows(b, p.ldb, n0, p.n, k0, p.k, tiles.b);
    } else {
      LoadDepth(b, p.ldb, n0, p.n, k0, p.k, tiles.b);
    }
    __syncthreads();  // all threads have written the tiles
    Multiply(tiles, row, column, acc);
    __syncthreads();  // all threads have read them
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (m0 + row + i >= p.m || n0 + column + j >= p.n) continue;
      C& to = c[(m0 + row + i) * p.ldc + n0 + column + j];
      const float product = p.scale * acc[i][j];
      to = FromFloat<C>(p.accumulate ? ToFloat(to) + product : product);
    }
  }
}

// A block of threads computes one tile of C at a time, and goes on with the
// tile gridDim.x further on. A and B are of type T, C of type C.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    TiledProduct(const __grid_constant__ Product p, int64_t row_tiles,
                 int64_t column_tiles, int64_t all_tiles) {
  __shared__ Tiles tiles;
  for (int64_t tile = blockIdx.x; tile < all_tiles; tile += gridDim.x) {
    const int64_t n0 = tile % column_tiles * kTile;
    const int64_t m0 = tile / column_tiles % row_tiles * kTile;
    int64_t product = tile / column_tiles / row_tiles;
    int64_t at_a = 0, at_b = 0, at_c = 0;
#pragma unroll
    for (int level = 2; level >= 0; --level) {
      const Repeat& r = p.repeats[level];
      const int64_t n = product % r.count;
      product /= r.count;
      at_a += n * r.a;
      at_b += n * r.b;
      at_c += n * r.c;
    }
    ComputeTile(p, static_cast<const T*>(p.a) + at_a,
                static_cast<const T*>(p.b) + at_b, static_cast<C*>(p.c) + at_c,
                m0, n0, tiles);
  }
}

template <class T, class C>
cudaError_t Launch(const Product& p, cudaStream_t stream) {
  const int64_t row_tiles = (p.m + kTile - 1) / kTile;
  const int64_t column_tiles = (p.n + kTile - 1) / kTile;
  const int64_t tiles = row_tiles * column_tiles * p.repeated();
  const unsigned blocks =
      static_cast<unsigned>(std::min<int64_t>(tiles, int64_t{1} << 30));
  TiledProduct<T, C>
      <<<blocks, kThreads, 0, stream>>>(p, row_tiles, column_tiles, tiles);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchTiledProduct(const Product& p, cudaStream_t stream) {
  const bool to_f32 = p.c_dtype == DType::kF32;
  switch (p.dtype) {
    case DType::kF32:
      return Launch<float, float>(p, stream);
    case DType::kF16:
      return to_f32 ? Launch<__half, float>(p, stream)
                    : Launch<__half, __half>(p, stream);
    case DType::kBF16:
      return to_f32 ? Launch<__nv_bfloat16, float>(p, stream)
                    : Launch<__nv_bfloat16, __nv_bfloat16>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnd::cuda
