#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_ROW_LOADER_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_ROW_LOADER_CUH_

// Copies Q, dO, LSE and delta of the rows that visit a block of columns to
// shared memory, by cp.async, a step ahead where there is room.

#include <cstdint>

#include "kernels/cuda/sm80/backward/column_block.cuh"
#include "kernels/cuda/sm80/backward/shared.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"

namespace attnd::cuda::sm80 {

// All threads of the block make the same calls. Each call of a public Load
// function commits one group of copies, empty where no rows are left.
template <class Config>
class RowLoader {
 public:
  static constexpr bool kTwoQ = Config::kQBuffers == 2;
  static constexpr bool kTwoDO = Config::kDOBuffers == 2;

  __device__ RowLoader(uint32_t memory, BackwardShared<Config>& shared)
      : memory_(memory), shared_(shared) {}

  // Addresses of the rows' tiles, [kRows, kDim], in shared memory.
  __device__ uint32_t Q(int buffer) const {
    return memory_ + Memory::kQ + (kTwoQ ? buffer * Rows::Bytes(kRows) : 0);
  }
  __device__ uint32_t DO(int buffer) const {
    return memory_ + Memory::kDO + (kTwoDO ? buffer * Rows::Bytes(kRows) : 0);
  }

  // Starts copying the first rows, all that is known of them, to buffer 0.
  __device__ void LoadFirst(const Visit& visit) const {
    LoadTerms(visit, 0);
    LoadQ(visit, 0);
    LoadDO(visit, 0);
    ptx::CpAsyncCommit();
  }

  // Starts copying the rows after `here`, if any: what has two buffers, to
  // buffer `buffer`, the one that the rows of `here` are not in.
  __device__ void LoadAhead(const Visit& here, int buffer) const {
    Visit next = here;
    if (Next(shared_.block, next)) {
      LoadTerms(next, buffer);
      if (kTwoQ) LoadQ(next, buffer);
      if (kTwoDO) LoadDO(next, buffer);
    }
    ptx::CpAsyncCommit();
  }

  // Starts copying the rest of the rows after `here`, what has only one buffer.
  // Nobody may still read that.
  __device__ void LoadOnlyBuffers(const Visit& here) const {
    Visit next = here;
    if (Next(shared_.block, next)) {
      if (!kTwoQ) LoadQ(next, 0);
      if (!kTwoDO) LoadDO(next, 0);
    }
    ptx::CpAsyncCommit();
  }

 private:
  using T = typename Config::T;
  using Memory = BackwardMemory<Config>;
  using Rows = typename Memory::Rows;
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads;

  __device__ void LoadQ(const Visit& visit, int buffer) const {
    LoadRows(Q(buffer), shared_.q, visit, shared_.description.problem.head_dim);
  }
  __device__ void LoadDO(const Visit& visit, int buffer) const {
    LoadRows(DO(buffer), shared_.d_o, visit,
             shared_.description.problem.value_dim);
  }
  __device__ void LoadRows(uint32_t tile, const HeadRows<T>& from,
                           const Visit& visit, int dim) const {
    const int64_t row = int64_t{visit.rows} * kRows;
    const int valid = static_cast<int>(
        min(shared_.block.intervals.rows - row, int64_t{kRows}));
    LoadTile<Config::kDim, kRows, kThreads>(tile, from.Row(visit.head, row),
                                            from.token_stride, valid, dim,
                                            threadIdx.x);
  }

  // LSE and delta of the visit's rows, and which columns they see, unless all
  // see all of them.
  __device__ void LoadTerms(const Visit& visit, int buffer) const {
    constexpr int kChunks = kRows / 4;
    static_assert(kRows <= kThreads && 2 * kChunks <= kThreads);
    if (threadIdx.x < 2 * kChunks) {
      const int chunk = threadIdx.x % kChunks * 4;
      const int64_t row = shared_.scratch.template RowOf<kRows>(visit) + chunk;
      const bool first = threadIdx.x < kChunks;
      ptx::CpAsync16(
          ptx::SharedAddress(first ? &shared_.lse[buffer][chunk]
                                   : &shared_.delta[buffer][chunk]),
          (first ? shared_.scratch.lse : shared_.scratch.delta) + row);
    }
    if (IsMasked(shared_.block, visit) && threadIdx.x < kRows) {
      shared_.seen[buffer][threadIdx.x] = Seen<Config::kCols>(
          shared_.block, int64_t{visit.rows} * kRows + threadIdx.x);
    }
  }

  const uint32_t memory_;
  BackwardShared<Config>& shared_;
};

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_ROW_LOADER_CUH_
