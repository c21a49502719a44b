#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_BACKWARD_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_BACKWARD_CUH_

// Backward for 16-bit inputs: FlashAttention-2. A block of threads keeps a
// block of columns, their K and V and what has been summed up of their dK and
// dV, while Q and dO of all rows that see them come by, of one q head after the
// other. What these rows' dQ gets from the columns is added to sums in memory.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sm80/backward/column_block.cuh"
#include "kernels/cuda/sm80/backward/column_sums.cuh"
#include "kernels/cuda/sm80/backward/config.h"
#include "kernels/cuda/sm80/backward/operand.cuh"
#include "kernels/cuda/sm80/backward/row_loader.cuh"
#include "kernels/cuda/sm80/backward/row_sums.cuh"
#include "kernels/cuda/sm80/backward/score_tile.cuh"
#include "kernels/cuda/sm80/backward/shared.cuh"
#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda::sm80 {

template <class Config>
class Backward {
 public:
  using T = typename Config::T;
  using Memory = BackwardMemory<Config>;
  using Rows = typename Memory::Rows;
  using Scores = typename Memory::Scores;
  static constexpr int kDim = Config::kDim, kRows = Config::kRows,
                       kCols = Config::kCols, kThreads = Config::kThreads;
  static constexpr int kTiles = Config::kWarpCols / 16;
  static constexpr int kN = Config::kPassRows / 8;
  static constexpr int kDimTiles = Config::kWarpDims / 8;
  static constexpr bool kInRegisters = Config::kInRegisters;
  // A warp's part of S and dP, transposed, and of dK and dV.
  using ScoreTile = float[kTiles][kN][4];
  using Sums = float[kTiles][kDimTiles][4];
  // B of dK and dV.
  using ToColumns = OperandB<Rows, Lines::kAcrossSum>;

  __device__ explicit Backward(std::byte* memory)
      : memory_(ptx::SharedAddress(memory)),
        shared_(*reinterpret_cast<BackwardShared<Config>*>(memory +
                                                           Memory::kShared)),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        column_(warp_ / Config::kParts * Config::kWarpCols),
        part_(warp_ % Config::kParts) {}

  __device__ void Run(const LaunchParams& params) {
    Begin(params);
    Sums dk, dv;
    Clear(dk);
    Clear(dv);
    if (!shared_.block.visited.empty()) Loop(dk, dv);
    const DeviceProblem& p = *shared_.block.sequence.problem;
    const uint32_t staging =
        memory_ +
        warp_ * TileLayout<Config::kWarpDims>::Bytes(Config::kWarpCols);
    const ColumnPart at = {shared_.block, column_, part_ * Config::kWarpDims,
                           staging, lane_};
    Finish(at, 1.0f, dv);
    Store<T>(at, dv, shared_.gradients.dv, p.value_dim);
    __syncwarp();  // all have left the staging memory
    Finish(at, p.scale, dk);
    Store<T>(at, dk, shared_.gradients.dk, p.head_dim);
  }

 private:
  // Says what there is to do, and starts loading K and V. Everything that is
  // needed later stays in shared memory.
  __device__ void Begin(const LaunchParams& params) {
    const int64_t index = TakeTile(params, shared_.tile);
    const OpenTile tile =
        FindTile<kThreads>(params, index, shared_.description);
    const auto block = MakeColumnBlock<kRows, kCols>(params, tile);
    const DeviceProblem& p = *tile.problem;
    if (!block.visited.empty()) {
      const DeviceSegment& s = tile.segments[block.segment];
      LoadTile<kDim, kCols, kThreads>(
          memory_ + Memory::kK, ColumnRows<T>(s.k, block), s.k.token_stride,
          block.valid, p.head_dim, threadIdx.x);
      LoadTile<kDim, kCols, kThreads>(
          memory_ + Memory::kV, ColumnRows<T>(s.v, block), s.v.token_stride,
          block.valid, p.value_dim, threadIdx.x);
    }
    if (threadIdx.x == 0) {
      const auto& gradients =
          *At<DeviceGradients>(BlobOf(params), tile.gradients);
      shared_.block = block;
      shared_.q = HeadRows<T>(p.q, block);
      shared_.d_o = HeadRows<T>(gradients.d_o, block);
      shared_.scratch = RowScratch(params, gradients, block);
      shared_.turn = {};
      shared_.gradients = At<DeviceSegmentGradients>(
          BlobOf(params), gradients.segments)[block.segment];
      const ScoreRule rule = MakeScoreRule(p, 0, 0);
      shared_.plain = rule.plain();
      shared_.factor = rule.factor(true);
    }
    __syncthreads();  // all have what was written
  }

  // A step for each block of rows, between barriers:
  //
  //   S, P, dP, dS of the warp's rows; dV += P^T dO, dK += dS^T Q of these
  //   dV += P^T dO, dK += dS^T Q of the other warps' rows; dQ += dS K
  __device__ void Loop(Sums& dk, Sums& dv) {
    // This, dK and dV are all that is kept from step to step: there are no more
    // registers. What follows from the lane is found anew, see Forget.
    Visit here = FirstVisit(shared_.block);
    const RowLoader<Config> loader(memory_, shared_);
    loader.LoadFirst(here);
    do {
      ptx::CpAsyncWait<0>();
      // All have K, V and the rows; they have left P and dS of the step before,
      // the memory of its rows, and added to its dQ.
      __syncthreads();
      EndOldTurn();
      const int buffer = static_cast<int>(StepOf(shared_.block, here) % 2);
      loader.LoadAhead(here, buffer ^ 1);
      if constexpr (!kInRegisters) ptx::Forget(lane_);
      const uint32_t q = loader.Q(buffer), d_o = loader.DO(buffer);
      MultiplyScores(here, buffer, q, d_o, dk, dv);
      WaitForNewTurn(here);
      __syncthreads();  // all have P and dS, and it is the block's turn
      if constexpr (kInRegisters) ptx::Forget(lane_);
      RowSums<Config> dq(warp_, lane_);
      float* const sums = dq.Of(shared_.scratch, here);
      if constexpr (RowLoader<Config>::kTwoQ && RowLoader<Config>::kTwoDO) {
        AddToAll(q, d_o, dk, dv, dq, sums);
      } else {
        AddToColumns(q, d_o, dk, dv, Nothing());
        if constexpr (!kInRegisters) __syncthreads();  // all have left Q and dO
        loader.LoadOnlyBuffers(here);
        if (sums != nullptr) AddToRows(dq, sums);
      }
      // What was added is there before the turn ends.
      if (shared_.scratch.turns != nullptr) __threadfence();
    } while (Next(shared_.block, here));
    __syncthreads();  // all have left the tiles, and added to dQ
    EndOldTurn();
  }

  // P and dS of the warp's part of the tile, and what its own dK and dV get
  // from them.
  __device__ void MultiplyScores(const Visit& visit, int buffer, uint32_t q,
                                 uint32_t d_o, Sums& dk, Sums& dv) {
    const bool masked = IsMasked(shared_.block, visit);
    const int dim = part_ * Config::kWarpDims;
#pragma unroll 1
    for (int pass = 0; pass < Config::kWarpRows; pass += Config::kPassRows) {
      const int row = part_ * Config::kWarpRows + pass;
      const RowTerms rows = {&shared_.lse[buffer][row],
                             &shared_.delta[buffer][row],
                             &shared_.seen[buffer][row]};
      ScoreTile s, ds;
      Multiply(memory_ + Memory::kK, q, row, s);
      const RegistersA<T, kTiles, kN> p(s);
      const bool huge = rows.lse[lane_ % Config::kPassRows] == kHugeLse;
      if (!shared_.plain || __any_sync(0xffffffff, huge)) {
        float slopes[kTiles * kN * 4];
        const float* natural_lse =
            shared_.scratch.natural_lse +
            shared_.scratch.template RowOf<kRows>(visit) + row;
        ExponentiateSlowly(rows, natural_lse, RuleOf(visit), masked,
                           int64_t{visit.rows} * kRows + row, BiasColumn(),
                           column_, lane_, s, slopes);
#pragma unroll
        for (int part = 0; part < kTiles * kN; ++part) StoreP(part, row, s);
        AddProduct<T, Config::kPassRows>(p, ToColumns(d_o, dim, row, lane_),
                                         dv);
        MultiplyBySlopes<kTiles, kN>(slopes, s);
        Multiply(memory_ + Memory::kV, d_o, row, ds);
#pragma unroll
        for (int part = 0; part < kTiles * kN; ++part) {
          MakeDS(part, rows, row, s, ds);
        }
      } else {
        if (masked) Mask(rows, column_, lane_, s);
        const float factor = shared_.factor;
        Multiply(memory_ + Memory::kV, d_o, row, ds, [&](int i, int count) {
          DoShare<kTiles * kN>(i, count, [&](int part) {
            const int t = part % kTiles, n = part / kTiles;
            Exponentiate(rows, factor, n, lane_, s[t][n]);
            StoreP(part, row, s);
          });
        });
        if constexpr (!kInRegisters) ptx::Forget(lane_);
        AddProduct<T, Config::kPassRows>(
            p, ToColumns(d_o, dim, row, lane_), dv, [&](int i, int count) {
              DoShare<kTiles * kN>(
                  i, count, [&](int part) { MakeDS(part, rows, row, s, ds); });
            });
      }
      AddProduct<T, Config::kPassRows>(RegistersA<T, kTiles, kN>(ds),
                                       ToColumns(q, dim, row, lane_), dk);
    }
  }

  // (E1) or (E14), transposed: the warp's columns of K or V by rows of Q or dO.
  template <class Between = Nothing>
  __device__ void Multiply(uint32_t columns, uint32_t rows, int row,
                           ScoreTile& product, const Between& between = {}) {
    Clear(product);
    AddProduct<T, kDim>(
        OperandA<Rows, Lines::kAlongSum>(columns, column_, 0, lane_),
        OperandB<Rows, Lines::kAlongSum>(rows, row, 0, lane_), product,
        between);
  }

  // For the warps that have the same columns and other rows.
  __device__ void StoreP(int part, int row, const ScoreTile& p) {
    const int t = part % kTiles, n = part / kTiles;
    if constexpr (!kInRegisters) {
      StoreBlock<T, Scores>(p[t][n], memory_ + Memory::kP, column_ + 16 * t,
                            row / 8 + n, lane_);
    }
  }
  // (E15). `p`: with slopes, for (E16).
  __device__ void MakeDS(int part, const RowTerms& rows, int row,
                         const ScoreTile& p, ScoreTile& ds) {
    const int t = part % kTiles, n = part / kTiles;
    Differentiate(rows, n, lane_, p[t][n], ds[t][n]);
    StoreBlock<T, Scores>(ds[t][n], memory_ + Memory::kDS, column_ + 16 * t,
                          row / 8 + n, lane_);
  }

  __device__ ScoreRule RuleOf(const Visit& visit) const {
    const ColumnBlock& block = shared_.block;
    const DeviceProblem& p = *block.sequence.problem;
    return MakeScoreRule(p, block.sequence.b,
                         block.kv_head * p.group + visit.head);
  }
  __device__ int64_t BiasColumn() const {
    const ColumnBlock& block = shared_.block;
    return block.sequence.segment(block.segment).bias_column +
           block.first_column;
  }

  // (E13), (E18): what the warp's dK and dV get from the other parts of rows.
  template <class Between>
  __device__ void AddToColumns(uint32_t q, uint32_t d_o, Sums& dk, Sums& dv,
                               const Between& between) {
    using A = OperandA<Scores, Lines::kAlongSum>;
    const int dim = part_ * Config::kWarpDims;
#pragma unroll
    for (int other = 1; other < Config::kParts; ++other) {
      const int row = (part_ + other) % Config::kParts * Config::kWarpRows;
      const auto share = [&](int first) {
        return [&between, first, other](int i, int count) {
          between(2 * (other - 1) * count + first * count + i,
                  2 * (Config::kParts - 1) * count);
        };
      };
      AddProduct<T, Config::kWarpRows>(
          A(memory_ + Memory::kP, column_, row, lane_),
          ToColumns(d_o, dim, row, lane_), dv, share(0));
      AddProduct<T, Config::kWarpRows>(
          A(memory_ + Memory::kDS, column_, row, lane_),
          ToColumns(q, dim, row, lane_), dk, share(1));
    }
  }

  // Both of the above, and (E17). Sums of dQ are added to while products run:
  // memory takes them one by one. Where nobody wants dQ, and all is shared, its
  // product is found in vain: to branch around it spills 228 bytes at D 128.
  __device__ void AddToAll(uint32_t q, uint32_t d_o, Sums& dk, Sums& dv,
                           RowSums<Config>& dq, float* sums) {
    if constexpr (kInRegisters) {
      if (sums != nullptr) AddToRows(dq, sums);
    } else {
      MultiplyDq(dq);
      AddToColumns(q, d_o, dk, dv, [&](int i, int count) {
        DoShare<RowSums<Config>::kParts>(i, count, [&](int part) {
          if (sums != nullptr) dq.Add(part, sums);
        });
      });
    }
  }
  __device__ void AddToRows(RowSums<Config>& dq, float* sums) {
    MultiplyDq(dq);
#pragma unroll
    for (int part = 0; part < RowSums<Config>::kParts; ++part) {
      dq.Add(part, sums);
    }
  }

  // (E17), times what the sums have of the scale already.
  __device__ void MultiplyDq(RowSums<Config>& dq) const {
    dq.Multiply(memory_);
    if (!shared_.plain) {
      dq.MultiplyBy(DqPower(shared_.block.sequence.problem->scale));
    }
  }

  // Before a barrier, after which the block may add to the rows' dQ.
  __device__ void WaitForNewTurn(const Visit& visit) {
    if (threadIdx.x != 0 || shared_.scratch.turns == nullptr) return;
    const Turn turn = MakeTurn<kRows>(shared_.block, shared_.scratch, visit);
    WaitForTurn(turn.counter, turn.number);
    shared_.turn = turn;
  }
  // After a barrier that comes after all have added.
  __device__ void EndOldTurn() {
    if (threadIdx.x != 0 || shared_.turn.counter == nullptr) return;
    EndTurn(shared_.turn.counter, shared_.turn.number);
  }

  const uint32_t memory_;
  BackwardShared<Config>& shared_;
  int lane_;
  const int warp_;
  const int column_;  // the first of the warp's
  const int part_;    // of the rows of S and dP, and of the dims of dK and dV
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    BackwardKernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  Backward<Config>(memory).Run(params);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_BACKWARD_CUH_
