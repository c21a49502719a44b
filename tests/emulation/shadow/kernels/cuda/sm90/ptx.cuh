#ifndef ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_SM90_PTX_CUH_
#define ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_SM90_PTX_CUH_

// In place of kernels/cuda/sm90/ptx.cuh, which says what each function does.

#include <cuda.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/tile/ptx.cuh"
#include "tests/emulation/block_barrier.h"
#include "tests/emulation/cluster.h"
#include "tests/emulation/copy_engine.h"
#include "tests/emulation/mbarrier.h"

namespace attnd::cuda::sm90::ptx {

using cuda::ptx::Exp2;
using cuda::ptx::Log2;
using cuda::ptx::Pack;
using cuda::ptx::Reciprocal;
using cuda::ptx::SharedAddress;
using cuda::ptx::StoreShared16;

inline void BarrierInit(uint32_t barrier, uint32_t arrivals) {
  emulation::InitMBarrier(barrier, arrivals);
}
inline void FenceBarrierInit() {}
inline void BarrierArrive(uint32_t barrier) {
  emulation::ArriveAtMBarrier(barrier, 0);
}
inline void BarrierArriveExpect(uint32_t barrier, uint32_t bytes) {
  emulation::ArriveAtMBarrier(barrier, bytes);
}
inline void BarrierWait(uint32_t barrier, uint32_t parity) {
  emulation::WaitForMBarrier(barrier, parity);
}
inline bool BarrierTest(uint32_t barrier, uint32_t parity) {
  return emulation::TestMBarrier(barrier, parity);
}

inline void BarrierPoll(uint32_t barrier, uint32_t parity) {
  while (!BarrierTest(barrier, parity)) {
  }
}

inline uint32_t ClusterRank() { return emulation::ClusterRank(); }
inline uint32_t ClusterAddress(uint32_t address, uint32_t rank) {
  return emulation::ClusterAddress(address, rank);
}
inline void ClusterArrive() { emulation::ArriveAtCluster(); }
inline void ClusterWait() { emulation::WaitForCluster(); }
inline void StoreCluster(uint32_t to, uint32_t value, uint32_t barrier) {
  emulation::StartStore(to, value, barrier);
}
inline void BarrierArriveCluster(uint32_t barrier) {
  emulation::ArriveAtMBarrier(barrier, 0);
}
inline void BulkSend(uint32_t to, uint32_t from, uint32_t bytes,
                     uint32_t barrier) {
  emulation::StartBulkSend(to, from, bytes, barrier);
}

inline uint64_t GlobalAddress(const void* p) {
  return reinterpret_cast<uint64_t>(p);
}
inline void StoreGlobal4(uint64_t to, float x) {
  *reinterpret_cast<float*>(to) = x;
}
inline void StoreGlobal8(uint64_t to, uint32_t a, uint32_t b) {
  *reinterpret_cast<uint2*>(to) = {a, b};
}
inline void AddGlobal(uint64_t to, float a, float b, float c, float d) {
  auto& sums = *reinterpret_cast<float4*>(to);
  emulation::AddFlushed(sums.x, a);
  emulation::AddFlushed(sums.y, b);
  emulation::AddFlushed(sums.z, c);
  emulation::AddFlushed(sums.w, d);
}

inline void StoreMatrices(uint32_t row, uint32_t a, uint32_t b, uint32_t c,
                          uint32_t d) {
  emulation::StoreMatrices(row, {a, b, c, d}, false);
}
inline void StoreMatricesTransposed(uint32_t row, uint32_t a, uint32_t b,
                                    uint32_t c, uint32_t d) {
  emulation::StoreMatrices(row, {a, b, c, d}, true);
}

inline void TmaLoad(uint32_t to, const CUtensorMap* map, int c0, int c1, int c2,
                    int c3, uint32_t barrier) {
  emulation::StartBoxLoad(to, map, {c0, c1, c2, c3}, barrier);
}
inline void BulkLoad(uint32_t to, const void* from, uint32_t bytes,
                     uint32_t barrier) {
  emulation::StartBulkLoad(to, from, bytes, barrier);
}
inline void TmaStore(const CUtensorMap* map, int c0, int c1, int c2, int c3,
                     uint32_t from) {
  emulation::StartBoxStore(map, {c0, c1, c2, c3}, from);
}
inline void BulkAdd(float* to, uint32_t from, uint32_t bytes) {
  emulation::StartBulkAdd(to, from, bytes);
}
inline void CommitStores() { emulation::CommitStoreGroup(); }
template <bool kRead>
void WaitForStores() {
  emulation::WaitForStoreGroups(kRead);
}
inline void TmaPrefetch(const CUtensorMap*, int, int, int, int) {}
inline void BulkPrefetch(const void* from, uint32_t bytes) {
  emulation::BulkPrefetch(from, bytes);
}
// The line of the cache that is there may begin before what is the kernel's.
inline void Prefetch(const void*) {}
inline void FenceTensorMap(const CUtensorMap*) {}
inline void FenceAsyncProxy() { emulation::FenceForAsync(); }
inline void FenceAsyncProxyGlobal() {}

template <int kRegisters>
void TakeRegisters() {
  emulation::SyncWarp("setmaxnreg.inc");
}
template <int kRegisters>
void GiveRegisters() {
  emulation::SyncWarp("setmaxnreg.dec");
}
template <int kThreads>
void NamedBarrierSync(int barrier) {
  emulation::SyncNamed(barrier, kThreads);
}
template <int kThreads>
void NamedBarrierArrive(int barrier) {
  emulation::ArriveNamed(barrier, kThreads);
}

}  // namespace attnd::cuda::sm90::ptx

#endif  // ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_SM90_PTX_CUH_
