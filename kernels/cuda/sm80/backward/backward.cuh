#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_BACKWARD_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_BACKWARD_CUH_

// Backward for 16-bit inputs, as in FlashAttention-2. A block of threads keeps
// a block of columns: their K and V, and the sums of their dK and dV so far. Q
// and dO of all rows that see them come by in tiles, one q head of the group
// after the other. They add to the sums of these rows' dQ in memory.

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

// Computes one block of columns of one K/V head.
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
  // A warp's part of S or dP, transposed: kWarpCols columns by kPassRows rows.
  using ScoreTile = float[kTiles][kN][4];
  // A warp's part of dK or dV: kWarpCols columns by kWarpDims dims.
  using Sums = float[kTiles][kDimTiles][4];
  // dO or Q as the B operand of the products that make dV or dK.
  using ToColumns = OperandB<Rows, Lines::kAcrossSum>;

  __device__ explicit Backward(std::byte* memory)
      : memory_(ptx::SharedAddress(memory)),
        shared_(*reinterpret_cast<BackwardShared<Config>*>(memory +
                                                           Memory::kShared)),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        column_(warp_ / Config::kParts * Config::kWarpCols),
        part_(warp_ % Config::kParts) {}

  // Computes this block's tile.
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
    AddBefore(at, shared_.gradients.dv_before, p.value_dim, dv);
    Store<T>(at, dv, shared_.gradients.dv, p.value_dim);
    __syncwarp();  // all lanes have read dV from the staging memory
    Finish(at, p.scale, dk);
    AddBefore(at, shared_.gradients.dk_before, p.head_dim, dk);
    Store<T>(at, dk, shared_.gradients.dk, p.head_dim);
  }

 private:
  // Writes to shared memory what there is to do, and starts copying K and V.
  // What is needed later stays there: the loop has no registers for it.
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
    __syncthreads();  // thread 0 has written what all read
  }

  // Takes a step for each visit of a block of rows. A barrier parts its halves:
  //
  //   S, P, dP, dS of the warp's rows; with them dV += P^T dO, dK += dS^T Q
  //   dV += P^T dO, dK += dS^T Q with the other warps' rows; dQ += dS K
  __device__ void Loop(Sums& dk, Sums& dv) {
    // `here`, dK and dV are all that registers keep from step to step. What is
    // computed from the lane is computed anew in each (ptx::Forget).
    Visit here = FirstVisit(shared_.block);
    const RowLoader<Config> loader(memory_, shared_);
    loader.LoadFirst(here);
    do {
      ptx::CpAsyncWait<0>();
      // All threads' copies of K, V and this step's rows have arrived. All
      // threads have finished the step before: they have read its P, dS and
      // rows, and have added to its dQ.
      __syncthreads();
      EndOldTurn();
      const int buffer = static_cast<int>(StepOf(shared_.block, here) % 2);
      loader.LoadAhead(here, buffer ^ 1);
      if constexpr (!kInRegisters) ptx::Forget(lane_);
      const uint32_t q = loader.Q(buffer), d_o = loader.DO(buffer);
      MultiplyScores(here, buffer, q, d_o, dk, dv);
      WaitForNewTurn(here);
      // All warps have written P and dS, and thread 0 has waited until it is
      // the block's turn at the rows' dQ.
      __syncthreads();
      if constexpr (kInRegisters) ptx::Forget(lane_);
      RowSums<Config> dq(warp_, lane_);
      float* const sums = dq.Of(shared_.scratch, here);
      if constexpr (RowLoader<Config>::kTwoQ && RowLoader<Config>::kTwoDO) {
        AddToAll(q, d_o, dk, dv, dq, sums);
      } else {
        AddToColumns(q, d_o, dk, dv, Nothing());
        // All warps have read Q and dO, of which those with one buffer are
        // refilled next. If kInRegisters they had by the barrier before.
        if constexpr (!kInRegisters) __syncthreads();
        loader.LoadOnlyBuffers(here);
        if (sums != nullptr) AddToRows(dq, sums);
      }
      // Whoever has the next turn must see what this thread has added.
      if (shared_.scratch.turns != nullptr) __threadfence();
    } while (Next(shared_.block, here));
    // All threads have read the tiles, whose memory becomes staging, and have
    // added to dQ.
    __syncthreads();
    EndOldTurn();
  }

  // The first half of a step: finds P and dS of the warp's part of the tile,
  // and adds to dV and dK what the warp's own rows give. `q` and `d_o` are the
  // rows' tiles, [kRows, kDim]; `buffer` says where RowTerms are.
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

  // The product of (E1), or (E14), transposed: the warp's columns of K or V,
  // [kCols, kDim], by kPassRows rows of Q or dO, from row `row` on.
  template <class Between = Nothing>
  __device__ void Multiply(uint32_t columns, uint32_t rows, int row,
                           ScoreTile& product, const Between& between = {}) {
    Clear(product);
    AddProduct<T, kDim>(
        OperandA<Rows, Lines::kAlongSum>(columns, column_, 0, lane_),
        OperandB<Rows, Lines::kAlongSum>(rows, row, 0, lane_), product,
        between);
  }

  // Writes a 16 x 8 block of P to shared memory, for the warps that have the
  // same columns and other rows.
  __device__ void StoreP(int part, int row, const ScoreTile& p) {
    const int t = part % kTiles, n = part / kTiles;
    if constexpr (!kInRegisters) {
      StoreBlock<T, Scores>(p[t][n], memory_ + Memory::kP, column_ + 16 * t,
                            row / 8 + n, lane_);
    }
  }
  // Turns a 16 x 8 block of dP into dS, (E15), and writes it to shared memory.
  // Where `p` has been multiplied by slopes it becomes dX, (E16).
  __device__ void MakeDS(int part, const RowTerms& rows, int row,
                         const ScoreTile& p, ScoreTile& ds) {
    const int t = part % kTiles, n = part / kTiles;
    Differentiate(rows, n, lane_, p[t][n], ds[t][n]);
    StoreBlock<T, Scores>(ds[t][n], memory_ + Memory::kDS, column_ + 16 * t,
                          row / 8 + n, lane_);
  }

  // The rule for the visit's q head.
  __device__ ScoreRule RuleOf(const Visit& visit) const {
    const ColumnBlock& block = shared_.block;
    const DeviceProblem& p = *block.sequence.problem;
    return MakeScoreRule(p, block.sequence.b,
                         block.kv_head * p.group + visit.head);
  }
  // The bias's column at which the block begins.
  __device__ int64_t BiasColumn() const {
    const ColumnBlock& block = shared_.block;
    return block.sequence.segment(block.segment).bias_column +
           block.first_column;
  }

  // (E13), (E18): adds to the warp's dV and dK what the rows of the other warps
  // give, whose P and dS are in shared memory. Calls between(i, count) between
  // products, see AddProduct.
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

  // The second half of a step, where Q and dO have two buffers: AddToColumns,
  // and (E17). dQ is added to its sums between the products, as memory takes
  // the additions one by one. Where warps share rows, dQ's product is computed
  // even if nobody wants dQ: a branch around it would spill 228 bytes at D 128.
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
  // (E17), without anything in between.
  __device__ void AddToRows(RowSums<Config>& dq, float* sums) {
    MultiplyDq(dq);
#pragma unroll
    for (int part = 0; part < RowSums<Config>::kParts; ++part) {
      dq.Add(part, sums);
    }
  }

  // The product of (E17), times the part of the scale that the sums of dQ
  // include (DqPower).
  __device__ void MultiplyDq(RowSums<Config>& dq) const {
    dq.Multiply(memory_);
    if (!shared_.plain) {
      dq.MultiplyBy(DqPower(shared_.block.sequence.problem->scale));
    }
  }

  // Thread 0 waits for the block's turn at the visit's rows, if there are
  // turns. A barrier must follow, after which all threads may add to these
  // rows' dQ.
  __device__ void WaitForNewTurn(const Visit& visit) {
    if (threadIdx.x != 0 || shared_.scratch.turns == nullptr) return;
    const Turn turn = MakeTurn<kRows>(shared_.block, shared_.scratch, visit);
    WaitForTurn(turn.counter, turn.number);
    shared_.turn = turn;
  }
  // Thread 0 ends the last turn. A barrier must precede, before which all
  // threads have added.
  __device__ void EndOldTurn() {
    if (threadIdx.x != 0 || shared_.turn.counter == nullptr) return;
    EndTurn(shared_.turn.counter, shared_.turn.number);
  }

  const uint32_t memory_;  // address of the tiles, see BackwardMemory
  BackwardShared<Config>& shared_;
  int lane_;
  const int warp_;
  const int column_;  // the warp's first column in the block
  // The warp's part of the rows of S and dP, and of the dims of dK and dV.
  const int part_;
};

// The launch gives a block of threads to each tile, and BackwardSharedBytes of
// shared memory to each block.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    BackwardKernel(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  Backward<Config>(memory).Run(params);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_BACKWARD_CUH_
