// Include before hwy/foreach_target.h or hwy/highway.h, in every file alike.
// Each target compiles the kernels once more, so only those that change their
// shape are kept: AVX-512, AVX2, NEON, and whatever the compiler's baseline is.
#ifndef ATTND_KERNELS_CPU_TARGETS_H_
#define ATTND_KERNELS_CPU_TARGETS_H_

// By bit, since names differ between Highway's releases: bits 3 to 7 are
// AVX-512 with extensions that the kernels do not use, 11 and 12 SSE4 and
// SSSE3, 18 to 27 SVE, whose vectors cannot be held in arrays.
#define HWY_DISABLED_TARGETS ((0x1FLL << 3) | (0x3LL << 11) | (0x3FFLL << 18))

#endif  // ATTND_KERNELS_CPU_TARGETS_H_
