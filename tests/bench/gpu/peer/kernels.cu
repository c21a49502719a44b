#include <cuda_runtime.h>

#include "tests/bench/gpu/peer/kernels.h"

namespace attnd::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 2048;
// Two such blocks are all threads that a multiprocessor of 8.0 or 9.0 takes.
constexpr int kFullThreads = 1024;
constexpr int kFullBlocks = 2;
constexpr uint64_t kLatest = 2'000'000'000;  // nanoseconds

__host__ __device__ uint32_t Hash(uint32_t seed, int64_t index) {
  uint64_t x = static_cast<uint64_t>(index) + (uint64_t{seed} << 40);
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return static_cast<uint32_t>(x >> 32) | 1;
}

__device__ uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

__device__ uint32_t Look(const uint32_t* word) {
  return *static_cast<const volatile uint32_t*>(word);
}

__global__ void FillKernel(Words words) {
  const int64_t count = words.rows * words.width;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / words.width, col = i % words.width;
    words.data[row * words.pitch + col] =
        Hash(words.seed, words.first + row * words.source_pitch + col);
  }
}

__global__ void CountWrongKernel(Words words, uint32_t* wrong) {
  const int64_t count = words.rows * words.width;
  uint32_t mine = 0;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / words.width, col = i % words.width;
    if (words.data[row * words.pitch + col] !=
        Hash(words.seed, words.first + row * words.source_pitch + col)) {
      ++mine;
    }
  }
  if (mine != 0) atomicAdd(wrong, mine);
}

__global__ void HoldKernel(const uint32_t* ticket, uint32_t wanted,
                           uint32_t* late) {
  const uint64_t begin = Nanoseconds();
  while (static_cast<int32_t>(Look(ticket) - wanted) < 0) {
    if (Nanoseconds() - begin > kLatest) {
      *late = 1;
      return;
    }
  }
}

__global__ void SpinKernel(uint64_t nanoseconds, uint64_t* stamps) {
  const uint64_t begin = Nanoseconds();
  uint64_t now = begin;
  while (now - begin < nanoseconds) now = Nanoseconds();
  stamps[0] = begin;
  stamps[1] = now;
}

__global__ void StampArrivalKernel(const uint32_t* word, uint32_t value,
                                   uint64_t* stamp) {
  const uint64_t begin = Nanoseconds();
  uint64_t now = begin;
  while (Look(word) != value) {
    now = Nanoseconds();
    if (now - begin > kLatest) {
      *stamp = 0;
      return;
    }
  }
  *stamp = Nanoseconds();
}

__global__ void Empty() {}

__global__ void __launch_bounds__(kFullThreads, kFullBlocks)
    MultiplyKernel(int64_t rounds, float factor, float* sink) {
  constexpr int kChains = 8;
  constexpr int kUnrolled = 16;
  float sums[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) sums[c] = threadIdx.x + c;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
#pragma unroll
      for (int c = 0; c < kChains; ++c) {
        sums[c] = fmaf(sums[c], factor, 0.5f);
      }
    }
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += sums[c];
  // It never is, which the compiler cannot know: it keeps the sums.
  if (sum == -1) *sink = sum;
}

__global__ void __launch_bounds__(kFullThreads, kFullBlocks)
    MoveKernel(int64_t rounds, const uint4* from, uint4* to, int64_t count) {
  for (int64_t round = 0; round < rounds; ++round) {
    for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
         i += int64_t{gridDim.x} * blockDim.x) {
      uint4 words = from[i];
      words.x += static_cast<uint32_t>(round);
      to[i] = words;
    }
  }
}

}  // namespace

cudaError_t Fill(const Words& words, cudaStream_t stream) {
  FillKernel<<<kBlocks, kThreads, 0, stream>>>(words);
  return cudaGetLastError();
}

cudaError_t CountWrong(const Words& words, uint32_t* wrong,
                       cudaStream_t stream) {
  CountWrongKernel<<<kBlocks, kThreads, 0, stream>>>(words, wrong);
  return cudaGetLastError();
}

uint32_t RandomWord(uint32_t seed, int64_t index) { return Hash(seed, index); }

cudaError_t Hold(const uint32_t* ticket, uint32_t wanted, uint32_t* late,
                 cudaStream_t stream) {
  HoldKernel<<<1, 1, 0, stream>>>(ticket, wanted, late);
  return cudaGetLastError();
}

cudaError_t Spin(int64_t nanoseconds, uint64_t* stamps, cudaStream_t stream) {
  SpinKernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(nanoseconds), stamps);
  return cudaGetLastError();
}

cudaError_t StampArrival(const uint32_t* word, uint32_t value, uint64_t* stamp,
                         cudaStream_t stream) {
  StampArrivalKernel<<<1, 1, 0, stream>>>(word, value, stamp);
  return cudaGetLastError();
}

const void* EmptyKernel() { return reinterpret_cast<const void*>(&Empty); }

cudaError_t Multiply(int64_t rounds, int multiprocessors, float* sink,
                     cudaStream_t stream) {
  MultiplyKernel<<<kFullBlocks * multiprocessors, kFullThreads, 0, stream>>>(
      rounds, 0.999f, sink);
  return cudaGetLastError();
}

cudaError_t Move(int64_t rounds, int multiprocessors, const void* from,
                 void* to, int64_t bytes, cudaStream_t stream) {
  MoveKernel<<<kFullBlocks * multiprocessors, kFullThreads, 0, stream>>>(
      rounds, static_cast<const uint4*>(from), static_cast<uint4*>(to),
      bytes / static_cast<int64_t>(sizeof(uint4)));
  return cudaGetLastError();
}

}  // namespace attnd::bench
