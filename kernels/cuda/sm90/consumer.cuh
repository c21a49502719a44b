#ifndef ATTND_KERNELS_CUDA_SM90_CONSUMER_CUH_
#define ATTND_KERNELS_CUDA_SM90_CONSUMER_CUH_

// A consumer: a warpgroup that has 64 rows of a tile. Its tensor cores multiply
// while its other units exponentiate:
//
//     tensor cores   QK(n+1) PV(n) │ QK(n+2) PV(n+1) │ ...
//     the others     softmax(n+1)  │ softmax(n+2)    │ ...
//
// and consumers take turns in issuing products, so that while one's softmax
// runs the other's products do. Where products are short, a consumer waits for
// PV(n) before softmax(n+1), which then can round P as it goes (kAwaitsO).

#include <cstdint>

#include "kernels/cuda/sm90/epilogue.cuh"
#include "kernels/cuda/sm90/mask.cuh"
#include "kernels/cuda/sm90/products.cuh"
#include "kernels/cuda/sm90/ring.cuh"
#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/sm90/softmax.cuh"

namespace attnd::cuda::sm90 {

template <class Config>
class Consumer {
 public:
  using T = typename Config::T;
  static constexpr int kCols = Config::kCols;
  static constexpr bool kAwaitsO = Config::kShape.awaits_o;

  // `number` is which of the consumers this is, from 0 on.
  __device__ Consumer(Shared<Config>& shared, int number)
      : shared_(shared),
        number_(number),
        lane_(threadIdx.x % 32),
        row_(64 * number + threadIdx.x % 128 / 32 * 16 + lane_ / 4) {}

  __device__ void Run() {
    if (number_ == Config::kConsumers - 1) PassTurn();  // to consumer 0
    while (true) {
      O o;
      const TileSlot& slot = WaitForSlot();
      if (slot.kind == SlotKind::kEnd) break;
      if (slot.kind == SlotKind::kDrain) {
        LeaveSlot();
        continue;
      }
      OnlineSoftmax softmax;
      // RunFastTiles moves on to the last of the fast tiles that follow one
      // another, which is closed here; so this holds for that one, too.
      const bool fast = slot.kind == SlotKind::kFast;
      if (fast) {
        RunFastTiles(softmax, o);
      } else if (slot.kind == SlotKind::kSlow) {
        RunSlowTile(slot, softmax, o);
      }
      Weights weights;
      if (IsAlone()) [[unlikely]] {
        const int i = slot_.index();
        weights = CloseAlone<T>(softmax, shared_.slots[i],
                                shared_.load_slots[i], fast, row_, lane_, o);
      } else {
        weights = CloseTile(softmax, fast);
      }
      FinishTile(weights, o);
    }
    ptx::WaitForStores<true>();  // stores may still read O from shared memory
  }

 private:
  using S = float[kCols / 2];              // S, P: [64, kCols]
  using P = uint32_t[kCols / 4];           // P, rounded
  using O = float[Config::kValueDim / 2];  // [64, kValueDim]
  using Stages = RingPlace<Config::kStages>;

  // Named barrier 1 + n is consumer n's turn: consumer n waits there, and the
  // consumer before it arrives, the last one for consumer 0.
  __device__ void TakeTurn() const { ptx::NamedBarrierSync<256>(1 + number_); }
  __device__ void PassTurn() const {
    ptx::NamedBarrierArrive<256>(
        1 + (number_ + 1 == Config::kConsumers ? 0 : number_ + 1));
  }

  __device__ const TileSlot& WaitForSlot() const {
    ptx::BarrierWait(ptx::SharedAddress(&shared_.slot_ring.full[slot_.index()]),
                     slot_.parity());
    return shared_.slots[slot_.index()];
  }
  __device__ void LeaveSlot() {
    WarpArrives(shared_.slot_ring.empty[slot_.index()], lane_);
    slot_.Next();
  }
  __device__ void WaitForQ() const {
    ptx::BarrierWait(
        ptx::SharedAddress(&shared_.q_rings[number_].full[q_.index()]),
        q_.parity());
  }
  __device__ void WaitForK() const {
    ptx::BarrierWait(ptx::SharedAddress(&shared_.k_ring.full[k_.index()]),
                     k_.parity());
  }
  // Where V is of the tile of columns `ago` before that of the next K.
  __device__ Stages V(uint32_t ago) const { return Stages(k_.count() - ago); }
  __device__ void WaitForV() const {
    const Stages v = V(1);
    ptx::BarrierWait(ptx::SharedAddress(&shared_.v_ring.full[v.index()]),
                     v.parity());
  }
  __device__ void StartS(S& s) const {
    // Without this, the address of the consumer's Q takes a register.
    uint32_t number = number_;
    ptx::Pin(number);
    StartQK<Config>(ptx::SharedAddress(shared_.q[q_.index()][number]),
                    ptx::SharedAddress(shared_.k[k_.index()]), s);
  }
  __device__ void StartO(P& p, bool accumulate, O& o) const {
    StartPV<Config>(p, ptx::SharedAddress(shared_.v[V(1).index()]), accumulate,
                    o);
  }
  // The loader's ColumnFlags of the tile of columns at hand. They are there
  // when K is, and are read before S is awaited.
  __device__ uint32_t ReadFlags() const {
    return shared_.columns[k_.index()].flags;
  }
  // Waits for the P·V that was started last, and lets go of its V.
  __device__ void AwaitO(P& p, O& o) const {
    ptx::WgmmaWait<0>();
    ptx::Pin(o);
    ptx::Pin(p);
    LeaveV(2);
  }
  // Once S is there: masks it, and lets go of K and, after the last tile, of Q.
  __device__ void TakeS(uint32_t flags, S& s) {
    if (flags & kLast) LeaveQ();
    if (flags & kMasked) Mask(shared_.columns[k_.index()], row_, lane_, s);
    LeaveK();
  }
  __device__ void LeaveQ() {
    WarpArrives(shared_.q_rings[number_].empty[q_.index()], lane_);
    q_.Next();
  }
  __device__ void LeaveK() {
    WarpArrives(shared_.k_ring.empty[k_.index()], lane_);
    k_.Next();
  }
  __device__ void LeaveV(uint32_t ago) const {
    WarpArrives(shared_.v_ring.empty[V(ago).index()], lane_);
  }

  // Whether the tile of rows at hand ends before the next begins.
  __device__ bool IsAlone() const { return shared_.slots[slot_.index()].alone; }
  // Once all P of the tile of rows at hand are summed up: stores LSE.
  __device__ Weights CloseTile(const OnlineSoftmax& softmax, bool fast) const {
    return Close<T>(softmax, shared_.slots[slot_.index()], fast, row_, lane_);
  }
  // Stores O of the tile of rows at hand, and leaves its slot.
  __device__ void FinishTile(const Weights& weights, O& o) {
    const int i = slot_.index();
    Finish<T, Config::kOutputPanels>(
        weights, shared_.slots[i], shared_.load_slots[i], row_, lane_,
        shared_.OutputOf(4 * number_ + threadIdx.x % 128 / 32), o);
    LeaveSlot();
  }

  // Runs the tile of rows at hand and all fast ones that follow it without a
  // pause: the first Q·K of each starts before the last P·V of the one before,
  // unless that one is alone.
  // The caller must close and finish the last one.
  __device__ void RunFastTiles(OnlineSoftmax& softmax, O& o) {
    S s;
    P p;
    float shrink[2];
    float factor = shared_.slots[slot_.index()].factor;
    WaitForQ();
    WaitForK();
    uint32_t flags = ReadFlags();
    StartS(s);
    ptx::WgmmaWait<0>();
    ptx::Pin(s);
    TakeS(flags, s);
    softmax.Begin(s, true);
    softmax.Exponentiate(s, factor);
    RoundP<T>(s, p);
    // Bit 0: this P is the last of its tile of rows. Bit 1: the P before it
    // was, and this one's P·V begins O.
    uint32_t lasts = 2 | (flags & kLast);
#pragma unroll 1
    while (true) {
      const bool last = lasts & 1;
      Weights weights;
      if (last) [[unlikely]] {
        const TileSlot& slot = NextSlot();
        if (slot.kind != SlotKind::kFast || IsAlone()) break;
        weights = CloseTile(softmax, /*fast=*/true);
        factor = slot.factor;
        WaitForQ();
      }
      WaitForK();
      flags = ReadFlags();
      TakeTurn();
      StartS(s);
      WaitForV();
      StartO(p, !(lasts & 2), o);
      PassTurn();
      softmax.SetMost();
      const bool begins = last || softmax.HasUnseen();
      ptx::WgmmaWait<1>();
      ptx::Pin(s);
      TakeS(flags, s);
      if (begins) [[unlikely]]
        softmax.Begin(s, last);
      bool moves;
      if constexpr (kAwaitsO) {
        AwaitO(p, o);
        moves = softmax.ExponentiateAhead(s, factor);
        RoundP<T>(s, p);
        if (moves) [[unlikely]] {
          softmax.Move(factor, s, shrink);
          RoundP<T>(s, p);
        }
      } else {
        // This branch waits for all of P. ptxas moves AwaitO's wait up as far
        // as it can, which would be before P, but not over a branch.
        moves = softmax.ExponentiateAhead(s, factor);
        if (moves) [[unlikely]]
          softmax.Move(factor, s, shrink);
        AwaitO(p, o);
      }
      if (last) [[unlikely]] {
        FinishTile(weights, o);
      } else if (moves) [[unlikely]] {
        ScaleRows(o, shrink);
      }
      if constexpr (!kAwaitsO) RoundP<T>(s, p);
      lasts = lasts << 1 | (flags & kLast);
    }
    WaitForV();
    StartO(p, !(lasts & 2), o);
    ptx::WgmmaWait<0>();
    ptx::Pin(o);
    LeaveV(1);
  }
  __device__ const TileSlot& NextSlot() const {
    RingPlace<Config::kSlots> next = slot_;
    next.Next();
    ptx::BarrierWait(ptx::SharedAddress(&shared_.slot_ring.full[next.index()]),
                     next.parity());
    return shared_.slots[next.index()];
  }

  // Runs a tile whose scores are not plain; nothing overlaps.
  __device__ void RunSlowTile(const TileSlot& slot, OnlineSoftmax& softmax,
                              O& o) {
    S s;
    P p;
    float shrink[2];
    bool accumulate = false, last = false;
    // The tile may be one that is done again, whose O is still being stored.
    ptx::WaitForStores<false>();
    WaitForQ();
#pragma unroll 1
    while (!last) {
      WaitForK();
      StartS(s);
      ptx::WgmmaWait<0>();
      ptx::Pin(s);
      const ColumnTile<Config::kRows>& tile = shared_.columns[k_.index()];
      last = tile.flags & kLast;
      Score(tile, slot, row_, lane_, s);
      LeaveK();
      softmax.RaiseAndExponentiate(s, shrink);
      if (accumulate) ScaleRows(o, shrink);
      RoundP<T>(s, p);
      WaitForV();
      StartO(p, accumulate, o);
      ptx::WgmmaWait<0>();
      ptx::Pin(o);
      LeaveV(1);
      accumulate = true;
    }
    LeaveQ();
  }

  Shared<Config>& shared_;
  const int number_, lane_;
  const int row_;  // the thread's first row of the tile; it also has row_ + 8
  RingPlace<Config::kQBuffers> q_;
  Stages k_;  // the next K; V's place follows from it, see V()
  RingPlace<Config::kSlots> slot_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_CONSUMER_CUH_
