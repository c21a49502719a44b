#ifndef ATTND_TESTS_BENCH_GPU_PEER_KERNELS_H_
#define ATTND_TESTS_BENCH_GPU_PEER_KERNELS_H_

// Small kernels that fill, compare, wait and keep a GPU busy. Each is enqueued
// on a stream of the calling thread's device.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace attnd::bench {

// Rows of words in memory, as they lie in a random buffer of `seed`.
struct Words {
  uint32_t* data = nullptr;
  int64_t rows = 1, width = 0, pitch = 0;  // in words
  // Word (r, c) is that of index first + r * source_pitch + c.
  uint32_t seed = 0;
  int64_t first = 0, source_pitch = 0;
};
// Writes the words; none of them is 0.
cudaError_t Fill(const Words& words, cudaStream_t stream);
// Adds to *wrong, which is on the device, how many words are not as filled.
cudaError_t CountWrong(const Words& words, uint32_t* wrong,
                       cudaStream_t stream);
// What Fill writes as word `index`.
uint32_t RandomWord(uint32_t seed, int64_t index);

// Holds up the stream until *ticket, of pinned memory, has reached `wanted`. It
// gives up after two seconds and says so in *late: whatever went wrong, the
// program shall end.
cudaError_t Hold(const uint32_t* ticket, uint32_t wanted, uint32_t* late,
                 cudaStream_t stream);

// One thread that runs for `nanoseconds`, and says in stamps[0] and stamps[1]
// when it began and ended, by the GPU's clock.
cudaError_t Spin(int64_t nanoseconds, uint64_t* stamps, cudaStream_t stream);
// One thread that says in *stamp when *word became `value`; 0 if it did not
// within two seconds.
cudaError_t StampArrival(const uint32_t* word, uint32_t value, uint64_t* stamp,
                         cudaStream_t stream);

// void(): for cudaLaunchKernel.
const void* EmptyKernel();

// Blocks that leave no room for others on any multiprocessor: of multiplies and
// adds in registers, or of reading `from` and writing `to`.
cudaError_t Multiply(int64_t rounds, int multiprocessors, float* sink,
                     cudaStream_t stream);
cudaError_t Move(int64_t rounds, int multiprocessors, const void* from,
                 void* to, int64_t bytes, cudaStream_t stream);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PEER_KERNELS_H_
