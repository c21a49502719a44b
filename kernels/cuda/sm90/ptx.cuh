#ifndef ATTND_KERNELS_CUDA_SM90_PTX_CUH_
#define ATTND_KERNELS_CUDA_SM90_PTX_CUH_

// Hopper's own instructions, one function each; wgmma itself is in wgmma.cuh,
// and what Ampere has in tile/ptx.cuh. Addresses of shared memory are 32 bits
// wide.

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/tile/ptx.cuh"

namespace attnd::cuda::sm90::ptx {

using cuda::ptx::Exp2;
using cuda::ptx::Log2;
using cuda::ptx::Pack;
using cuda::ptx::Reciprocal;
using cuda::ptx::SharedAddress;
using cuda::ptx::StoreShared16;

// --- mbarrier: a phase ends when all arrivals and all announced bytes are in.

// Makes a barrier of which `arrivals` arrivals end a phase. Other threads may
// use it after FenceBarrierInit and a barrier of the block.
__device__ inline void BarrierInit(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(arrivals)
               : "memory");
}
__device__ inline void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void BarrierArrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
// Arrives, and announces that `bytes` will be copied in.
__device__ inline void BarrierArriveExpect(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
// Waits until the phase of this parity is over. The first phase has parity 0; a
// barrier that is new counts as having ended a phase of parity 1.
__device__ inline void BarrierWait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Whether the phase of this parity is over, without waiting.
__device__ inline bool BarrierTest(uint32_t barrier, uint32_t parity) {
  uint32_t over;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;\n"
      "}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over != 0;
}

// The same as BarrierWait, but never suspends the warp, for threads of one warp
// that wait for different things.
__device__ inline void BarrierPoll(uint32_t barrier, uint32_t parity) {
  while (!BarrierTest(barrier, parity)) {
  }
}

// --- Clusters.

// The number of this block in its cluster.
__device__ inline uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The address, in the cluster's shared memory, of what block `rank` has where
// this block has `address`.
__device__ inline uint32_t ClusterAddress(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(address), "r"(rank));
  return there;
}
// A barrier of a cluster in two halves, both of which all threads that have not
// ended call. After ClusterWait a thread sees what others did before
// ClusterArrive.
__device__ inline void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ inline void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// Stores a word in the shared memory of any block of the cluster, where its
// bytes count for that block's `barrier`. Both are addresses in the cluster.
__device__ inline void StoreCluster(uint32_t to, uint32_t value,
                                    uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, "
      "[%2];" ::"r"(to),
      "r"(value), "r"(barrier)
      : "memory");
}
// Arrives at a barrier of any block of the cluster. It says that what wgmma has
// read for this thread may be overwritten, and no more: it is no release at the
// cluster's scope, which would wait for all that the thread has sent to memory.
__device__ inline void BarrierArriveCluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
// Starts to copy `bytes` in a row, a multiple of 16, from this block's shared
// memory to that of any block of the cluster, where they count for its
// `barrier`.
__device__ inline void BulkSend(uint32_t to, uint32_t from, uint32_t bytes,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// --- Memory.

// The address in global memory of what a pointer points to.
__device__ inline uint64_t GlobalAddress(const void* p) {
  return __cvta_generic_to_global(p);
}
__device__ inline void StoreGlobal4(uint64_t to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
// Stores 8 bytes, `a` first, at a multiple of 8.
__device__ inline void StoreGlobal8(uint64_t to, uint32_t a, uint32_t b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(a), "r"(b)
               : "memory");
}

// Adds to four floats in global memory, aligned to 16 bytes, each atomically.
// The thread does not wait for it.
__device__ inline void AddGlobal(uint64_t to, float a, float b, float c,
                                 float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// Stores four 8x8 matrices of 16-bit elements, a word of each lane for each:
// lane t has elements 2(t%4) and 2(t%4)+1 of row t/4. `row` of lane 8 i + r is
// the address to which row r of matrix i goes.
__device__ inline void StoreMatrices(uint32_t row, uint32_t a, uint32_t b,
                                     uint32_t c, uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
          row),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}
// The same, but each matrix is transposed on the way: the elements of a column
// become a row.
__device__ inline void StoreMatricesTransposed(uint32_t row, uint32_t a,
                                               uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, "
      "%4};" ::"r"(row),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

// --- The copy engine.

// Starts to copy the box at (c0, c1, c2, c3), innermost first, of a tensor of
// four dimensions to shared memory; what lies outside the tensor becomes 0. All
// bytes of the box count for `barrier`.
__device__ inline void TmaLoad(uint32_t to, const CUtensorMap* map, int c0,
                               int c1, int c2, int c3, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier)
      : "memory");
}
// Starts to copy `bytes` in a row to shared memory, where they count for
// `barrier`. `bytes` and both addresses are multiples of 16.
__device__ inline void BulkLoad(uint32_t to, const void* from, uint32_t bytes,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1], %2, [%3];" ::"r"(to),
      "l"(GlobalAddress(from)), "r"(bytes), "r"(barrier)
      : "memory");
}
// Starts to copy a box from shared memory to a tensor, but for what lies
// outside of it. A thread's stores since its last CommitStores are a group.
__device__ inline void TmaStore(const CUtensorMap* map, int c0, int c1, int c2,
                                int c3, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, "
      "%4}], [%5];" ::"l"(map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
      : "memory");
}
// Starts to add floats in a row, `bytes` in all, to those at `to`, each
// atomically. Like TmaStore, it is a store of the thread's group.
__device__ inline void BulkAdd(float* to, uint32_t from, uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], "
      "%2;" ::"l"(GlobalAddress(to)),
      "r"(from), "r"(bytes)
      : "memory");
}
__device__ inline void CommitStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until this thread's stores have been made or, if kRead, have read
// shared memory, so that it may be overwritten.
template <bool kRead>
__device__ inline void WaitForStores() {
  if constexpr (kRead) {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  } else {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
// Brings a box of a tensor to the L2 cache alone.
__device__ inline void TmaPrefetch(const CUtensorMap* map, int c0, int c1,
                                   int c2, int c3) {
  asm volatile(
      "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, "
      "%4}];" ::"l"(map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
// The same of `bytes` at `from`, both multiples of 16, and of the line of the
// cache that is at `from`.
__device__ inline void BulkPrefetch(const void* from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(GlobalAddress(from)),
      "r"(bytes)
      : "memory");
}
__device__ inline void Prefetch(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(GlobalAddress(from))
               : "memory");
}
// Must come before a thread's first use of a map that was copied to memory:
// what the multiprocessor remembers of another map at that address is
// forgotten.
__device__ inline void FenceTensorMap(const CUtensorMap* map) {
  asm volatile(
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map)
      : "memory");
}
// Makes what this thread has stored to shared memory visible to wgmma and the
// copy engine. Who then starts these must know by a barrier that it is there.
__device__ inline void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Orders what this thread has seen of global memory before what it has the copy
// engine do there.
__device__ inline void FenceAsyncProxyGlobal() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// --- Warpgroups.

// Raises and lowers how many registers each thread has; all warps of a
// warpgroup call it, and the raise waits until others have given theirs.
template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Named barriers 1 to 15; barrier 0 is __syncthreads. A phase ends when
// kThreads threads have come, to wait (Sync) or only to arrive.
template <int kThreads>
__device__ inline void NamedBarrierSync(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ inline void NamedBarrierArrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

}  // namespace attnd::cuda::sm90::ptx

#endif  // ATTND_KERNELS_CUDA_SM90_PTX_CUH_
