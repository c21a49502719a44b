#ifndef ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_PTX_CUH_
#define ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_PTX_CUH_

// In place of kernels/cuda/tile/ptx.cuh, which says what each function does.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/emulation/cp_async.h"
#include "tests/emulation/device.h"
#include "tests/emulation/flush.h"
#include "tests/emulation/matrix.h"
#include "tests/emulation/shared_memory.h"

#define ATTND_DYNAMIC_SHARED(name) \
  std::byte* const name = ::attnd::emulation::DynamicSharedMemory()

namespace attnd::cuda::ptx {

inline uint32_t SharedAddress(const void* pointer) {
  return emulation::SharedAddressOf(pointer);
}

inline void CpAsync16(uint32_t to, const void* from, int bytes) {
  emulation::StartCpAsync(to, from, static_cast<uint32_t>(bytes));
}
inline void CpAsync16(uint32_t to, const void* from) {
  emulation::StartCpAsync(to, from, 16);
}
inline void CpAsync16Once(uint32_t to, const void* from) {
  emulation::StartCpAsync(to, from, 16);
}
inline void CpAsyncCommit() { emulation::CommitCpAsync(); }
template <int kPending>
void CpAsyncWait() {
  emulation::WaitForCpAsync(kPending);
}

template <class T>
void StoreShared(uint32_t to, const T& data) {
  std::memcpy(emulation::SharedAt(to, sizeof(T)), &data, sizeof(T));
  emulation::Thread& self = emulation::Self();
  self.block->memory.NoteStore(to, self);
}
inline void StoreShared16(uint32_t to, uint4 data) { StoreShared(to, data); }
inline void StoreShared4(uint32_t to, uint32_t data) { StoreShared(to, data); }
inline uint4 LoadShared16(uint32_t from) {
  uint4 data;
  std::memcpy(&data, emulation::SharedAt(from, sizeof(data)), sizeof(data));
  return data;
}

inline void Ldmatrix(uint32_t (&r)[4], uint32_t address) {
  emulation::LoadMatrices(r, address, false);
}
inline void LdmatrixTrans(uint32_t (&r)[4], uint32_t address) {
  emulation::LoadMatrices(r, address, true);
}

template <class T>
inline constexpr DType kFloat16 =
    std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16;

template <class T>
void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulation::MultiplyMatrices(c, a, {b0, b1}, kFloat16<T>);
}

template <class T>
uint32_t Pack(float low, float high) {
  T both[2];
  if constexpr (std::is_same_v<T, __half>) {
    both[0] = __float2half_rn(low), both[1] = __float2half_rn(high);
  } else {
    both[0] = __float2bfloat16_rn(low), both[1] = __float2bfloat16_rn(high);
  }
  uint32_t packed;
  std::memcpy(&packed, both, sizeof(packed));
  return packed;
}

inline uint32_t AtomicIncrement(uint32_t* p, uint32_t most) {
  return atomicInc(p, most);
}
inline void Forget(int&) {}
inline void AtomicAdd(float* p, float x) {
  emulation::AddFlushed(*p, x);
  emulation::MaybeYield();
}
inline uint32_t LoadRelaxed(const uint32_t* p) {
  emulation::Poll("ld.relaxed");
  return *p;
}
inline uint32_t LoadAcquire(const uint32_t* p) {
  emulation::Poll("ld.acquire");
  return *p;
}
inline void StoreRelease(uint32_t* p, uint32_t value) {
  *p = value;
  emulation::Progress();
  emulation::MaybeYield();
}
inline void FenceAcquire() {}

using emulation::Flushed;

inline float Exp2(float x) { return Flushed(std::exp2(Flushed(x))); }
inline float Reciprocal(float x) { return Flushed(1.0f / Flushed(x)); }
inline float Log2(float x) { return Flushed(std::log2(Flushed(x))); }

}  // namespace attnd::cuda::ptx

#endif  // ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_PTX_CUH_
