#ifndef ATTND_KERNELS_CUDA_SM90_WGMMA_CUH_
#define ATTND_KERNELS_CUDA_SM90_WGMMA_CUH_

// wgmma: D[64, N] (+)= A[64, 16] B[16, N], 16-bit inputs and sums in f32, by
// the four warps of a warpgroup, asynchronously. B and, unless it is in
// registers, A come from shared memory in tiles with a swizzle of 128 bytes.
//
// Lane t of warp w holds two rows of D, row = 16 w + t/4 and row + 8:
// d[4 n + i] is column 8 n + 2 (t%4) + i%2 of row + 8 (i/2). It holds the same
// rows of an A in registers, two elements a word: a[0] (row) and a[1] (row + 8)
// are columns 2 (t%4) and 2 (t%4) + 1, a[2] and a[3] those 8 further on.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attnd::cuda::sm90::ptx {

// Must come before the first wgmma of a batch: orders what the thread has done
// with its registers before what wgmma does with them.
__device__ inline void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending of the groups that were committed still run.
template <int kPending>
__device__ inline void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler moves no use of these registers from one side of this to the
// other. It does not know that wgmma uses them until a wait.
template <int kCount>
__device__ inline void Pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+f"(registers[i])::"memory");
}
__device__ inline void Pin(uint32_t& r) {
  asm volatile("" : "+r"(r)::"memory");
}
template <int kCount>
__device__ inline void Pin(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+r"(registers[i])::"memory");
}

// Tells wgmma where a tile lies in shared memory (PTX ISA, "Matrix descriptor
// format"): in panels of rows of 128 bytes, `panel_bytes` apart, at multiples
// of 1024. `panel_bytes` counts only where N runs along the rows, across
// panels.
__device__ constexpr uint64_t Descriptor(uint32_t address,
                                         uint32_t panel_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | uint64_t{panel_bytes >> 4} << 16 |
         (address >> 4);
}
// The descriptor of the same tile from `bytes` on.
__device__ constexpr uint64_t Advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// clang-format off
// Registers %0 to %127 in eights, and N / 16 of the eights.
#define ATTND_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATTND_R1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define ATTND_R2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define ATTND_R3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define ATTND_R4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define ATTND_R5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define ATTND_R6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define ATTND_R7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define ATTND_R8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define ATTND_R9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define ATTND_R10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define ATTND_R11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define ATTND_R12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define ATTND_R13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define ATTND_R14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define ATTND_R15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define ATTND_LIST2 ATTND_R0 ", " ATTND_R1
#define ATTND_LIST4 ATTND_R0 ", " ATTND_R1 ", " ATTND_R2 ", " ATTND_R3
#define ATTND_LIST5 ATTND_LIST4 ", " ATTND_R4
#define ATTND_LIST6 ATTND_LIST5 ", " ATTND_R5
#define ATTND_LIST7 ATTND_LIST6 ", " ATTND_R6
#define ATTND_LIST8 ATTND_LIST7 ", " ATTND_R7
#define ATTND_LIST9 ATTND_LIST8 ", " ATTND_R8
#define ATTND_LIST10 ATTND_LIST9 ", " ATTND_R9
#define ATTND_LIST11 ATTND_LIST10 ", " ATTND_R10
#define ATTND_LIST12 ATTND_LIST11 ", " ATTND_R11
#define ATTND_LIST16 ATTND_LIST12 ", " ATTND_R12 ", " ATTND_R13 ", " ATTND_R14 ", " ATTND_R15
#define ATTND_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATTND_OPS2 ATTND_D8(0), ATTND_D8(8)
#define ATTND_OPS4 ATTND_D8(0), ATTND_D8(8), ATTND_D8(16), ATTND_D8(24)
#define ATTND_OPS5 ATTND_OPS4, ATTND_D8(32)
#define ATTND_OPS6 ATTND_OPS5, ATTND_D8(40)
#define ATTND_OPS7 ATTND_OPS6, ATTND_D8(48)
#define ATTND_OPS8 ATTND_OPS7, ATTND_D8(56)
#define ATTND_OPS9 ATTND_OPS8, ATTND_D8(64)
#define ATTND_OPS10 ATTND_OPS9, ATTND_D8(72)
#define ATTND_OPS11 ATTND_OPS10, ATTND_D8(80)
#define ATTND_OPS12 ATTND_OPS11, ATTND_D8(88)
#define ATTND_OPS16 ATTND_OPS12, ATTND_D8(96), ATTND_D8(104), ATTND_D8(112), ATTND_D8(120)
template <class T, int kN>
struct Wgmma;

// For one type and N; p to u are the numbers of the operands after D.
#define ATTND_WGMMA(T, TYPE, N, EIGHTS, p, q, r, s, t, u)                     \
  template <>                                                                 \
  struct Wgmma<T, N> {                                                        \
    /* D (+)= A B^T: A is [64, 16] in memory, B [N, 16]. */                   \
    __device__ static void Nt(float (&d)[N / 2], uint64_t a, uint64_t b,      \
                              bool accumulate) {                              \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r ", 0;\n"           \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE     \
                   "." TYPE " {" ATTND_LIST##EIGHTS "}, %" #p ", %" #q                      \
                   ", p, 1, 1, 0, 0;\n}"                                      \
                   : ATTND_OPS##EIGHTS                                                      \
                   : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));      \
    }                                                                         \
    /* D -= A B^T, of the same. */                                            \
    __device__ static void SubtractNt(float (&d)[N / 2], uint64_t a,          \
                                      uint64_t b) {                           \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE     \
                   "." TYPE " {" ATTND_LIST##EIGHTS "}, %" #p ", %" #q        \
                   ", 1, -1, 1, 0, 0;"                                        \
                   : ATTND_OPS##EIGHTS                                        \
                   : "l"(a), "l"(b));                                         \
    }                                                                         \
    /* D (+)= A B: A is [64, 16] in memory, B [16, N]. */                     \
    __device__ static void Nn(float (&d)[N / 2], uint64_t a, uint64_t b,      \
                              bool accumulate) {                              \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r ", 0;\n"           \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE     \
                   "." TYPE " {" ATTND_LIST##EIGHTS "}, %" #p ", %" #q        \
                   ", p, 1, 1, 0, 1;\n}"                                      \
                   : ATTND_OPS##EIGHTS                                        \
                   : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));      \
    }                                                                         \
    /* D (+)= A^T B: A is [16, 64] in memory, B [16, N]. */                   \
    __device__ static void Tn(float (&d)[N / 2], uint64_t a, uint64_t b,      \
                              bool accumulate) {                              \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r ", 0;\n"           \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE     \
                   "." TYPE " {" ATTND_LIST##EIGHTS "}, %" #p ", %" #q        \
                   ", p, 1, 1, 1, 1;\n}"                                      \
                   : ATTND_OPS##EIGHTS                                        \
                   : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));      \
    }                                                                         \
    /* D (+)= A B: A is in registers, B [16, N] in memory. */                 \
    __device__ static void Nn(float (&d)[N / 2], const uint32_t* a,           \
                              uint64_t b, bool accumulate) {                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #u ", 0;\n"           \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE     \
                   "." TYPE " {" ATTND_LIST##EIGHTS "}, {%" #p ", %" #q ", %" #r ", %" #s   \
                   "}, %" #t ", p, 1, 1, 1;\n}"                               \
                   : ATTND_OPS##EIGHTS                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),      \
                     "r"(static_cast<int>(accumulate)));                      \
    }                                                                         \
  };
#define ATTND_WGMMA_TYPES(...)                    \
  ATTND_WGMMA(__nv_bfloat16, "bf16", __VA_ARGS__) \
  ATTND_WGMMA(__half, "f16", __VA_ARGS__)
ATTND_WGMMA_TYPES(32, 2, 16, 17, 18, 19, 20, 21)
ATTND_WGMMA_TYPES(64, 4, 32, 33, 34, 35, 36, 37)
ATTND_WGMMA_TYPES(80, 5, 40, 41, 42, 43, 44, 45)
ATTND_WGMMA_TYPES(96, 6, 48, 49, 50, 51, 52, 53)
ATTND_WGMMA_TYPES(112, 7, 56, 57, 58, 59, 60, 61)
ATTND_WGMMA_TYPES(128, 8, 64, 65, 66, 67, 68, 69)
ATTND_WGMMA_TYPES(144, 9, 72, 73, 74, 75, 76, 77)
ATTND_WGMMA_TYPES(160, 10, 80, 81, 82, 83, 84, 85)
ATTND_WGMMA_TYPES(176, 11, 88, 89, 90, 91, 92, 93)
ATTND_WGMMA_TYPES(192, 12, 96, 97, 98, 99, 100, 101)
ATTND_WGMMA_TYPES(256, 16, 128, 129, 130, 131, 132, 133)
#undef ATTND_WGMMA_TYPES
#undef ATTND_WGMMA
// clang-format on

}  // namespace attnd::cuda::sm90::ptx

#endif  // ATTND_KERNELS_CUDA_SM90_WGMMA_CUH_
