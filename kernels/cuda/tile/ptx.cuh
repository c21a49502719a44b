#ifndef ATTND_KERNELS_CUDA_TILE_PTX_CUH_
#define ATTND_KERNELS_CUDA_TILE_PTX_CUH_

// The instructions of sm_80 and later that C++ does not have, one function
// each. Hopper's are in sm90/ptx.cuh and sm90/wgmma.cuh; asm is nowhere else.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

// Declares `name`, the shared memory that a block was launched with. It is a
// macro, because ptxas allocates other registers where a function returns the
// pointer.
#define ATTND_DYNAMIC_SHARED(name) \
  extern __shared__ __align__(1024) std::byte name[]

namespace attnd::cuda::ptx {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes to shared memory. Both addresses are multiples of 16.
__device__ inline void CpAsync16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
// The same for memory that is read only once: it is the first to leave the L2
// cache again, so that other things stay there.
__device__ inline void CpAsync16Once(uint32_t to, const void* from) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
      "l"(from), "l"(policy)
      : "memory");
}
// Copies `bytes` (0..16) to 16 bytes of shared memory and zeros the rest. Both
// addresses are multiples of 16.
__device__ inline void CpAsync16(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void CpAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of the groups that this thread committed are
// still under way.
template <int kPending>
__device__ inline void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void StoreShared16(uint32_t to, uint4 data) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(data.x), "r"(data.y), "r"(data.z), "r"(data.w)
               : "memory");
}
__device__ inline void StoreShared4(uint32_t to, uint32_t data) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(data) : "memory");
}
__device__ inline uint4 LoadShared16(uint32_t from) {
  uint4 data;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(data.x), "=r"(data.y), "=r"(data.z), "=r"(data.w)
               : "r"(from)
               : "memory");
  return data;
}

// Loads four 8x8 matrices of 16-bit elements; lanes 8n..8n+7 give the addresses
// of the nth one's rows. Lane t gets elements 2(t%4), 2(t%4)+1 of row t/4 of
// each.
__device__ inline void Ldmatrix(uint32_t (&r)[4], uint32_t address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(address)
      : "memory");
}
// The same, but each matrix is transposed on the way.
__device__ inline void LdmatrixTrans(uint32_t (&r)[4], uint32_t address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(address)
      : "memory");
}

// C[16, 8] += A[16, 16] B[16, 8] in f32. Lane t holds C's rows t/4 (c[0], c[1])
// and t/4 + 8 (c[2], c[3]) at columns 2(t%4) and 2(t%4)+1.
template <class T>
__device__ void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                    uint32_t b1);
template <>
__device__ inline void Mma<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                          uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void Mma<__half>(float (&c)[4], const uint32_t (&a)[4],
                                   uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to T, `low` in the lower half.
template <class T>
__device__ uint32_t Pack(float low, float high);
template <>
__device__ inline uint32_t Pack<__nv_bfloat16>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
__device__ inline uint32_t Pack<__half>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Adds 1 to *p, or sets it to 0 if it is `most`, and returns its old value. It
// is an acquire and a release: what this thread has written, or knows that
// others have, is seen by the threads that increment *p later.
__device__ inline uint32_t AtomicIncrement(uint32_t* p, uint32_t most) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(p)), "r"(most)
               : "memory");
  return before;
}

// Makes the compiler compute anew what follows from x, where it would otherwise
// keep the results in registers.
__device__ inline void Forget(int& x) { asm volatile("" : "+r"(x)); }

// Adds x to *p atomically; the thread does not wait for it.
__device__ inline void AtomicAdd(float* p, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(
                   __cvta_generic_to_global(p)),
               "f"(x)
               : "memory");
}

// Reads *p from memory each time, as others have written it.
__device__ inline uint32_t LoadRelaxed(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(p)
               : "memory");
  return value;
}
// Reads *p. If a StoreRelease or an AtomicIncrement has written the value, what
// its thread had written before can be read after this.
__device__ inline uint32_t LoadAcquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(p)
               : "memory");
  return value;
}
// Writes *p. A thread that reads the value by LoadAcquire sees what this thread
// has written, or knows that others have.
__device__ inline void StoreRelease(uint32_t* p, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value)
               : "memory");
}
// Turns the LoadRelaxed before it into a LoadAcquire.
__device__ inline void FenceAcquire() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// 2^x, relative error below 2^-22; 2^-inf is 0.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1/x, relative error below 2^-22; 1/0 is inf.
__device__ inline float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// log2(x), absolute error below 2^-22 near 1; log2(0) is -inf.
__device__ inline float Log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attnd::cuda::ptx

#endif  // ATTND_KERNELS_CUDA_TILE_PTX_CUH_
