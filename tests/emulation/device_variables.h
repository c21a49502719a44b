#ifndef ATTND_TESTS_EMULATION_DEVICE_VARIABLES_H_
#define ATTND_TESTS_EMULATION_DEVICE_VARIABLES_H_

// What kernels find out about themselves: of the thread that runs.

#include <vector_types.h>

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

#endif  // ATTND_TESTS_EMULATION_DEVICE_VARIABLES_H_
