#ifndef ATTND_KERNELS_CPU_FLASH_SCRATCH_H_
#define ATTND_KERNELS_CPU_FLASH_SCRATCH_H_

// How much memory a plan will take, said before there is one: the server
// charges it to the request.

#include <cstdint>

#include "kernels/attention.h"

namespace attnd::cpu {

// The bytes that `threads` workers take at most to run the problem, beside its
// inputs and outputs.
int64_t FlashScratchBytes(Op op, const Problem& problem, int threads);

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_FLASH_SCRATCH_H_
